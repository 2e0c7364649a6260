"""A simulated Trainium instance, as the demo sees it: a process with a runtime and a local cache tier of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from neuron_runtime.protocol.paths import RuntimePaths
from neuron_runtime.tools.snapshot import stop_daemon

HERE = Path(__file__).parent
PATIENCE_SECONDS = 300.0
GOODBYE_SECONDS = 10.0


class DemoFailedError(Exception):
    """The demo did not show what it promises."""


class Instance:
    """Runs one of the programs beside this file. Two instances share the cache at `shared`, and nothing else."""

    def __init__(
        self, name: str, place: Path, shared: Path, program: str, *arguments: str, lease: float = 12.0
    ) -> None:
        self.name = name
        self.runtime = place / name
        self.started = time.monotonic()
        self.found: list[dict[str, Any]] = []
        self._events: Queue[dict[str, Any] | None] = Queue()
        self.log = place / f"{name}.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / program), *arguments],
                env=os.environ
                | {
                    "NEURON_ENV_RUNTIME_DIR": str(self.runtime),
                    "NEURON_ENV_CACHE_URL": str(shared),
                    "NEURON_ENV_CACHE_LOCAL_DIR": str(place / f"tier-{name}"),
                    "NEURON_ENV_CACHE_LEASE_SECONDS": str(lease),
                    "NEURON_ENV_RUNTIME_IDLE_TIMEOUT": "20",
                    "NEURON_PROCESS_TAG": f"instance-{name}",
                    "NEURON_RT_NUM_CORES": "1",
                },
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C is for the demo, which then ends its instances
            )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._events.put(json.loads(line))
        self._events.put(None)

    def until(self, event: str, **facts: Any) -> dict[str, Any]:
        """The event, once it comes. Raises DemoFailedError when the instance ends, or stalls, before it."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                found = self._events.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                raise DemoFailedError(f"instance {self.name} said nothing for {PATIENCE_SECONDS:g} s") from None
            if found is None:
                said = self.log.read_text(errors="replace").strip()
                raise DemoFailedError(f"instance {self.name} ended with status {self.process.wait()}\n{said}")
            self.found.append(found)
            if found["event"] == event and facts.items() <= found.items():
                return found

    @property
    def models(self) -> dict[str, dict[str, Any]]:
        """What it told of each model, by the model's name."""
        return {found["model"]: found for found in self.found if found["event"] == "model"}

    def kill(self) -> None:
        """As a lost machine ends: kill -9."""
        self.process.send_signal(signal.SIGKILL)

    def leave(self) -> None:
        """Asks it to finish what it holds in the cache, and to end."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def end(self) -> None:
        """Waits until it has, and ends its runtime."""
        self.leave()
        try:
            self.process.wait(GOODBYE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        stop_daemon(RuntimePaths(self.runtime))
