"""Compile in a process of its own that stays warm between compiles, and say how a compile failed."""

from __future__ import annotations

import os
import signal
import threading
import time
import weakref
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from neuron_runtime.compiler.errors import CompileFailure, FailureKind
from neuron_runtime.compiler.frames import MAX_PAYLOAD, FrameError
from neuron_runtime.compiler.options import CompileOptions
from neuron_runtime.compiler.process import WorkerProcess, deadline_after

if TYPE_CHECKING:
    from neuron_runtime.compiler.compile import CompiledNeff

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


class WarmCompiler:
    """Compiles one program at a time in a worker process, started on first use and replaced when it dies.

    Neither a crash of the compiler nor one that never returns reaches the caller: each is a CompileFailure of the
    fitting kind, and the next compile gets a fresh worker. Thread-safe; a forked child gets a worker of its own.
    The worker ends with `close`, and at the latest when the caller is gone, however it went.
    """

    def __init__(self, *, memory_limit: int | None = None) -> None:
        """`memory_limit` bounds a compile's memory, in bytes on top of an idle worker; None leaves it to the host."""
        if memory_limit is not None and memory_limit <= 0:
            raise ValueError(f"memory_limit is {memory_limit} bytes, which is not a positive number")
        self._memory_limit = memory_limit
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._held = _Held()
        weakref.finalize(self, self._held.end)

    @property
    def worker_pid(self) -> int | None:
        """The process id of the worker while there is one."""
        worker = self._held.worker
        return worker.pid if worker is not None and worker.alive else None

    def start(self) -> None:
        """Start the worker now, to spare the first compile about half a second. Raises CompileFailure."""
        self._own()
        with self._lock:
            self._worker()

    def compile(
        self,
        ir: bytes,
        options: CompileOptions | None = None,
        *,
        name: str = "model",
        native: bool = True,
        timeout: float | None = None,
    ) -> CompiledNeff:
        """As `compile_neff`, in the worker. `timeout` is in seconds and counts waiting for other threads' compiles.

        Raises CompileFailure, and ValueError for a name that no NEFF can have. After a timeout, or an exception such
        as KeyboardInterrupt, the compile is killed.
        """
        from neuron_runtime.compiler.compile import check_name

        check_name(name)
        if len(ir) > MAX_PAYLOAD:
            raise CompileFailure(
                f"the program has {len(ir)} bytes, more than the {MAX_PAYLOAD} that the compiler takes",
                kind=FailureKind.COMPILER_ERROR,
                hint="pass the weights as inputs, not as constants of the program",
            )
        self._own()
        request = {"options": (options or CompileOptions()).to_json(), "name": name, "native": native}
        deadline = deadline_after(timeout)
        if not self._lock.acquire(timeout=-1 if timeout is None else timeout):
            raise CompileFailure(
                f"the compiler was busy with other programs for {timeout:g} s", kind=FailureKind.TIMEOUT
            )
        try:
            worker = self._worker(deadline)
            kills_before = _oom_kills()
            try:
                reply = worker.ask(request, ir, deadline)
            except TimeoutError:
                self._fail_timeout(worker, timeout)
            except FrameError:
                reply = None
            if reply is None:
                self._fail_dead(worker, kills_before)
            message, neff = reply
            if message.get("failure") == FailureKind.OUT_OF_MEMORY:
                # Memory that a failed compile leaves behind would be missing from the next.
                self._held.end(kill=True)
        except BaseException:
            self._held.end(kill=True)
            raise
        finally:
            self._lock.release()
        return _result(message, neff)

    def close(self) -> None:
        """End the worker. A later compile starts another."""
        self._own()
        with self._lock:
            self._held.end()

    def __enter__(self) -> WarmCompiler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

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
            worker = self._held.worker = WorkerProcess(self._memory_limit)
        except OSError as error:
            raise CompileFailure(f"the compiler cannot be started: {error}", kind=FailureKind.ENVIRONMENT) from error
        start_deadline = time.monotonic() + _START_SECONDS
        try:
            reply = worker.receive(start_deadline if deadline is None else min(start_deadline, deadline))
        except TimeoutError:
            self._held.end(kill=True)
            raise CompileFailure("the compiler did not start in time", kind=FailureKind.TIMEOUT) from None
        except FrameError:
            reply = None
        if reply is None or "failure" in reply[0]:
            said, status = worker.stderr(), worker.reap()
            self._held.end(kill=True)
            message = reply[0]["message"] if reply else f"the compiler did not start: {_manner(status)}"
            raise CompileFailure(
                message,
                kind=FailureKind.ENVIRONMENT,
                stderr=said,
                exit_code=status,
                hint=reply[0]["hint"] if reply else _hint(said),
            )
        return worker

    @staticmethod
    def _fail_timeout(worker: WorkerProcess, timeout: float | None) -> NoReturn:
        said = worker.stderr()
        status = worker.end(kill=True)
        raise CompileFailure(
            f"the compile took longer than {timeout:g} s and was killed",
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
                f"the compiler ran out of memory: {_manner(status)}",
                kind=FailureKind.OUT_OF_MEMORY,
                stderr=said,
                exit_code=status,
                hint="compile fewer programs at a time, or on a host with more memory",
            )
        raise CompileFailure(
            f"the compiler died: {_manner(status)}",
            kind=FailureKind.KILLED,
            stderr=said,
            exit_code=status,
            hint=_hint(said),
        )


def _result(reply: dict[str, Any], neff: bytes) -> CompiledNeff:
    from neuron_runtime.compiler.compile import CompiledNeff
    from neuron_runtime.neff import NeffManifest

    if "failure" in reply:
        raise CompileFailure(reply["message"], kind=FailureKind(reply["failure"]), hint=reply["hint"])
    return CompiledNeff(neff, NeffManifest.from_json(reply["manifest"]), reply["seconds"], tuple(reply["warnings"]))


class _Held:
    """The worker a WarmCompiler holds, apart from it so that its finalizer can end the worker."""

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
