"""A worker process kept warm between requests: started on first use, replaced when it dies, and asked how it died."""

from __future__ import annotations

import os
import signal
import threading
import time
import weakref
from pathlib import Path
from typing import Any, NoReturn

from neuron_runtime.compiler.errors import CompileFailure, FailureKind
from neuron_runtime.compiler.frames import FrameError
from neuron_runtime.compiler.process import WorkerProcess, deadline_after

_START_SECONDS = 120.0
# What the libraries below say when an allocation is refused; with a limit set that includes a thread's stack.
_OUT_OF_MEMORY_MARKS = (
    "bad_alloc",
    "out of memory",
    "cannot allocate memory",
    "memoryerror",
    "pthread_create() failed",
    "resource_exhausted",
)


class WarmWorker:
    """One request at a time to `python -m module`, which serves frames (see `serving.py`).

    Neither a crash of the worker nor one that never answers reaches the caller: each is a CompileFailure of the
    fitting kind, and the next request gets a fresh worker. Thread-safe; a forked child gets a worker of its own. The
    worker ends with `close`, and at the latest when the caller is gone, however it went.
    """

    def __init__(
        self,
        module: str,
        *,
        name: str,
        task: str,
        memory_limit: int | None = None,
        environ: dict[str, str] | None = None,
    ) -> None:
        """`name` and `task` are for messages, such as "the compiler" and "the compile".

        `memory_limit` bounds a request's memory, in bytes on top of an idle worker. `environ` is added to the
        environment.
        """
        if memory_limit is not None and memory_limit <= 0:
            raise ValueError(f"memory_limit is {memory_limit} bytes, which is not a positive number")
        self._module = module
        self._name = name
        self._task = task
        self._memory_limit = memory_limit
        self._environ = environ or {}
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._held = _Held()
        weakref.finalize(self, self._held.end)

    @property
    def pid(self) -> int | None:
        """The process id of the worker while there is one."""
        worker = self._held.worker
        return worker.pid if worker is not None and worker.alive else None

    def start(self) -> None:
        """Start the worker now. Raises CompileFailure."""
        self._own()
        with self._lock:
            self._worker()

    def ask(
        self, request: dict[str, Any], payload: bytes, *, timeout: float | None = None
    ) -> tuple[dict[str, Any], bytes]:
        """The reply to a request. `timeout` is in seconds and counts waiting for other threads' requests.

        Raises CompileFailure, also for one that the worker answers with. After a timeout, or an exception such as
        KeyboardInterrupt, the worker is killed.
        """
        self._own()
        deadline = deadline_after(timeout)
        if not self._lock.acquire(timeout=-1 if timeout is None else timeout):
            raise CompileFailure(
                f"{self._name} was busy with other programs for {timeout:g} s", kind=FailureKind.TIMEOUT
            )
        try:
            worker = self._worker(deadline)
            kills_before = _oom_kills()
            try:
                reply = worker.ask(request, payload, deadline)
            except TimeoutError:
                self._fail_timeout(worker, timeout)
            except FrameError:
                reply = None
            if reply is None:
                self._fail_dead(worker, kills_before)
            message, answer = reply
            if message.get("failure") == FailureKind.OUT_OF_MEMORY:
                # Memory that a failed request leaves behind would be missing from the next.
                self._held.end(kill=True)
        except BaseException:
            self._held.end(kill=True)
            raise
        finally:
            self._lock.release()
        if "failure" in message:
            raise CompileFailure(message["message"], kind=FailureKind(message["failure"]), hint=message["hint"])
        return message, answer

    def interrupt(self) -> None:
        """Kill the worker from another thread: the request it is at fails, and the next gets a fresh worker."""
        worker = self._held.worker
        if worker is not None and worker.alive:
            worker.kill()

    def close(self) -> None:
        """End the worker. A later request starts another."""
        self._own()
        with self._lock:
            self._held.end()

    def _own(self) -> None:
        if self._owner != os.getpid():
            # In a forked child the lock may be held by a thread that exists only in the parent.
            self._lock = threading.Lock()
            self._held.end()
            self._owner = os.getpid()

    def _worker(self, deadline: float | None = None) -> WorkerProcess:
        worker = self._held.worker
        if worker is not None and worker.alive:
            return worker
        self._held.end()
        try:
            worker = self._held.worker = WorkerProcess(self._module, self._memory_limit, environ=self._environ)
        except OSError as error:
            raise CompileFailure(f"{self._name} cannot be started: {error}", kind=FailureKind.ENVIRONMENT) from error
        start_deadline = time.monotonic() + _START_SECONDS
        try:
            reply = worker.receive(start_deadline if deadline is None else min(start_deadline, deadline))
        except TimeoutError:
            self._held.end(kill=True)
            raise CompileFailure(f"{self._name} did not start in time", kind=FailureKind.TIMEOUT) from None
        except FrameError:
            reply = None
        if reply is None or "failure" in reply[0]:
            said, status = worker.stderr(), worker.reap()
            self._held.end(kill=True)
            message = reply[0]["message"] if reply else f"{self._name} did not start: {_manner(status)}"
            raise CompileFailure(
                message,
                kind=FailureKind.ENVIRONMENT,
                stderr=said,
                exit_code=status,
                hint=reply[0]["hint"] if reply else _hint(said),
            )
        return worker

    def _fail_timeout(self, worker: WorkerProcess, timeout: float | None) -> NoReturn:
        said = worker.stderr()
        status = worker.end(kill=True)
        raise CompileFailure(
            f"{self._task} took longer than {timeout:g} s and was killed",
            kind=FailureKind.TIMEOUT,
            stderr=said,
            exit_code=status,
        )

    def _fail_dead(self, worker: WorkerProcess, kills_before: int) -> NoReturn:
        status, said = worker.reap(), worker.stderr()
        starved = any(mark in said.lower() for mark in _OUT_OF_MEMORY_MARKS)
        if status == -signal.SIGKILL and _oom_kills() > kills_before:
            starved = True
        if starved:
            raise CompileFailure(
                f"{self._name} ran out of memory: {_manner(status)}",
                kind=FailureKind.OUT_OF_MEMORY,
                stderr=said,
                exit_code=status,
                hint="compile fewer programs at a time, or on a host with more memory",
            )
        raise CompileFailure(
            f"{self._name} died: {_manner(status)}",
            kind=FailureKind.KILLED,
            stderr=said,
            exit_code=status,
            hint=_hint(said),
        )


class _Held:
    """The worker a WarmWorker holds, apart from it so that its finalizer can end the worker."""

    def __init__(self) -> None:
        self.worker: WorkerProcess | None = None

    def end(self, *, kill: bool = False) -> None:
        worker, self.worker = self.worker, None
        if worker is not None:
            worker.end(kill=kill)


def _manner(status: int) -> str:
    if status >= 0:
        return f"exit code {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"


def _hint(said: str) -> str | None:
    """The first line on standard error, which names the reason; what follows is a stack trace."""
    return f"its first words: {said.splitlines()[0].strip()}" if said else None


def _oom_kills() -> int:
    """How often the kernel has killed for memory so far: in this control group, or else on this host."""
    try:
        group = Path("/proc/self/cgroup").read_text().partition("::")[2].splitlines()[0]
        text = Path(f"/sys/fs/cgroup{group}/memory.events").read_text()
    except (OSError, IndexError):
        try:
            text = Path("/proc/vmstat").read_text()
        except OSError:
            return 0
    counts = dict(line.split()[:2] for line in text.splitlines() if len(line.split()) >= 2)
    return int(counts.get("oom_kill", 0))
