"""Client processes, and what they tell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_PATIENCE = 240.0  # seconds for anything: longer, and the benchmark has failed

Event = dict[str, Any]


class Member:
    """One process, and its events so far."""

    def __init__(self, config: Mapping[str, Any], environment: Mapping[str, str], log: Path) -> None:
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.fleet.client", json.dumps(config)],
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.events: list[Event] = []
        self._news = threading.Condition()
        self._ended = False
        self._log = log
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def all(self, what: str, **values: Any) -> list[Event]:
        wanted = {"what": what, **values}
        return [event for event in self.events if wanted.items() <= event.items()]

    def wait_for(self, what: str, *, or_end: bool = False, **values: Any) -> None:
        """Raises RuntimeError if the process ends before it tells that, unless `or_end`."""
        wanted = {"what": what, **values}
        with self._news:
            told = self._news.wait_for(
                lambda: self._ended or any(wanted.items() <= event.items() for event in self.events), _PATIENCE
            )
        if not told or (self._ended and not or_end and not self.all(what, **values)):
            raise RuntimeError(f"a client never told {wanted}: {self._log.read_text()[-2000:]}")

    def wait(self) -> int:
        """Its exit code, once all of its events are there."""
        code = self.process.wait(timeout=_PATIENCE)
        self._reader.join()
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.events.append(json.loads(line))
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()


@contextmanager
def crew(place: Path, environment: Mapping[str, str]) -> Iterator[Callable[..., Member]]:
    """`start(**config)` starts a member; all end with the block."""
    members: list[Member] = []

    def start(**config: Any) -> Member:
        members.append(Member(config, environment, place / "clients.log"))
        return members[-1]

    try:
        yield start
    finally:
        for member in members:
            member.close()


def go_together(members: Iterable[Member]) -> float:
    """Lets members begin once all are ready; the time when the first was let go."""
    members = list(members)
    for member in members:
        member.wait_for("ready")
    begun = time.monotonic()
    for member in members:
        member.go()
    return begun
