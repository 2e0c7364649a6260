"""Where the demo plays: its instances and their temporary place. They are gone when it ends, however it ends."""

from __future__ import annotations

import shutil
import signal
import tempfile
from pathlib import Path
from types import FrameType
from typing import Any

from instance import Instance


class Stage:
    """A context. Ctrl-C and SIGTERM raise KeyboardInterrupt in it, except while a process is being started or ended."""

    def __init__(self) -> None:
        # A short place: a Unix socket's path has room for about a hundred characters.
        self.place = Path(tempfile.mkdtemp(prefix="neuron-demo-"))
        self.place.chmod(0o700)
        self._instances: list[Instance] = []
        self._deaf = self._interrupted = False

    def __enter__(self) -> Stage:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._interrupt)
        return self

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._interrupted = True
        if not self._deaf:
            raise KeyboardInterrupt

    def start(self, name: str, shared: Path, program: str, *arguments: str, **options: Any) -> Instance:
        """An instance that runs a program beside this file, with the shared cache at `shared`."""
        self._deaf = True
        instance = Instance(name, self.place, shared, program, *arguments, **options)
        self._instances.append(instance)
        self._deaf = False
        if self._interrupted:
            raise KeyboardInterrupt
        return instance

    def __exit__(self, *_: object) -> None:
        self._deaf = True
        for instance in self._instances:
            instance.leave()
        for instance in self._instances:
            instance.end()
        shutil.rmtree(self.place, ignore_errors=True)
