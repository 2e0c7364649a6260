"""One worker process as its caller holds it: started, spoken to, ended, and asked how it died."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neuron_runtime.compiler import frames

_STDERR_KEPT = 16 << 10
_END_SECONDS = 2.0
_PACKAGE_ROOT = Path(__file__).resolve().parents[2]


class WorkerProcess:
    """A running `python -m module LIFELINE [MEMORY_LIMIT]`. Belongs to the process that made it, and dies with it."""

    def __init__(
        self, module: str, memory_limit: int | None = None, *, environ: Mapping[str, str] | None = None
    ) -> None:
        """`memory_limit` is in bytes beyond the idle worker's own; `environ` is added to the environment.

        Raises OSError when no process can be started.
        """
        self._owner = os.getpid()
        # Appending, so that the worker's position in the file is its own and reading here does not move it.
        self._stderr = tempfile.TemporaryFile("a+b")  # noqa: SIM115 - closed by `end`
        lifeline, self._lifeline = os.pipe()
        try:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",  # the caller's working directory is no place to import from
                    "-m",
                    module,
                    str(lifeline),
                    *([str(memory_limit)] if memory_limit else []),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                bufsize=0,
                pass_fds=(lifeline,),
                env={**_environment(), **(environ or {})},
                start_new_session=True,  # Ctrl-C is for the caller, who then ends the worker
            )
        except BaseException:
            os.close(self._lifeline)
            self._stderr.close()
            raise
        finally:
            os.close(lifeline)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._inbox, self._outbox = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._inbox, False)
        os.set_blocking(self._outbox, False)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        """False also in a forked child, to which the worker does not belong."""
        return self._owner == os.getpid() and self._process.poll() is None

    def receive(self, deadline: float | None = None) -> tuple[dict[str, Any], bytes] | None:
        """The next reply; None when the worker closed its end. Raises TimeoutError and FrameError."""
        return frames.receive(self._outbox, deadline=deadline)

    def ask(
        self, message: Mapping[str, Any], payload: bytes, deadline: float | None = None
    ) -> tuple[dict[str, Any], bytes] | None:
        """Send a request and receive its reply; None when the worker died. Raises TimeoutError and FrameError."""
        # A worker that ran out of memory while reading answers before it has read all.
        with contextlib.suppress(BrokenPipeError):
            frames.send(self._inbox, message, payload, deadline=deadline)
        reply = self.receive(deadline)
        if reply is not None:
            os.ftruncate(self._stderr.fileno(), 0)
        return reply

    def stderr(self) -> str:
        """The tail of what the worker wrote on standard error since its last reply."""
        fd = self._stderr.fileno()
        size = os.fstat(fd).st_size
        kept = os.pread(fd, _STDERR_KEPT, max(0, size - _STDERR_KEPT))
        return kept.decode(errors="replace").strip()

    def end(self, *, kill: bool = False) -> int | None:
        """End the worker and return its exit status (negative for a signal); None in a forked child."""
        if self._owner != os.getpid():
            # Only this process's copies of the descriptors are closed, and the worker stays its owner's.
            self._process.returncode = 0
            status = None
        else:
            status = self._kill() if kill else self._close()
        for stream in (self._process.stdin, self._process.stdout, self._stderr):
            if stream:
                stream.close()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        return status

    def kill(self) -> None:
        """Kill the worker and leave the rest to whoever waits for its reply."""
        self._process.kill()

    def reap(self) -> int:
        """The exit status of a worker that has closed its end, which is given a moment to be gone."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(_END_SECONDS)
        return self._kill()

    def _close(self) -> int:
        if self._process.stdin:
            self._process.stdin.close()
        return self.reap()

    def _kill(self) -> int:
        self._process.kill()
        return self._process.wait()


def _environment() -> dict[str, str]:
    """The caller's environment, with this package importable and no thread started by imports."""
    paths = [str(_PACKAGE_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "OPENBLAS_NUM_THREADS": "1",
        "TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "2"),
    }


def deadline_after(seconds: float | None) -> float | None:
    """`seconds` from now on `time.monotonic`; None for no deadline."""
    return None if seconds is None else time.monotonic() + seconds
