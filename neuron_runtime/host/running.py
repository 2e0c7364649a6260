"""Runs a program that may fail, hang or talk without end, and comes back in time."""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence

from neuron_runtime.host.missing import NotFoundHere

_LAST_WORDS = 300
_MAX_OUTPUT_BYTES = 16 << 20
_TO_DIE_S = 1.0


class Programs:
    """The programs that one reader of a host has running. They run in sessions of their own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._ended = False

    def run(self, argv: Sequence[str], environ: Mapping[str, str], timeout: float, *, label: str) -> str:
        """Stdout of a program. Raises NotFoundHere with its last words, or after `timeout` seconds.

        Whatever the outcome, what it started dies with it.
        """
        process = self._start(argv, environ, label)
        deadline = time.monotonic() + timeout
        try:
            out, err = _read(process, deadline, timeout, label)
            if not _has_ended(process, deadline):
                raise NotFoundHere(f"`{label}` timed out after {timeout:g} s")
        finally:
            with self._lock:
                self._running.discard(process)
            _end(process)
        if process.returncode:
            words = " ".join((err or out).decode(errors="replace").split())[-_LAST_WORDS:]
            how = f"status {process.returncode}" if process.returncode > 0 else f"signal {-process.returncode}"
            raise NotFoundHere(f"`{label}` ended with {how}" + (f": {words}" if words else ""))
        return out.decode(errors="replace")

    def end(self) -> None:
        """Kills what still runs, since nobody waits for it any more; nothing can be started after that."""
        with self._lock:
            self._ended = True
            for process in self._running:
                _kill(process)

    def _start(self, argv: Sequence[str], environ: Mapping[str, str], label: str) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._ended:
                raise NotFoundHere(f"`{label}` was not started: the time is over")
            try:
                process = subprocess.Popen(
                    argv,
                    env=dict(environ),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
            except OSError as error:
                raise NotFoundHere(f"`{label}` cannot be started: {error.strerror}") from None
            self._running.add(process)
            return process


def _read(process: subprocess.Popen[bytes], deadline: float, timeout: float, label: str) -> tuple[bytes, bytes]:
    assert process.stdout is not None
    assert process.stderr is not None
    parts: dict[int, bytearray] = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    with selectors.DefaultSelector() as selector:
        for descriptor in parts:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready and time.monotonic() >= deadline:
                raise NotFoundHere(f"`{label}` timed out after {timeout:g} s")
            for key, _ in ready:
                data = os.read(key.fd, 65536)
                parts[key.fd] += data
                if not data:
                    selector.unregister(key.fd)
                if len(parts[key.fd]) > _MAX_OUTPUT_BYTES:
                    raise NotFoundHere(f"`{label}` printed more than {_MAX_OUTPUT_BYTES >> 20} MiB")
    return bytes(parts[process.stdout.fileno()]), bytes(parts[process.stderr.fileno()])


def _has_ended(process: subprocess.Popen[bytes], deadline: float) -> bool:
    """Waits without reaping: the process id stays taken until its group has been killed."""
    descriptor = os.pidfd_open(process.pid)
    try:
        return bool(select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0])
    finally:
        os.close(descriptor)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kills the program's group, its children if it has ended itself; gives up on what a driver holds in the kernel."""
    _kill(process)
    try:
        process.wait(_TO_DIE_S)
    except subprocess.TimeoutExpired:
        process.returncode = -signal.SIGKILL  # else its destructor warns that it still runs
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
