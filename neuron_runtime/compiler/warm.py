"""Compile in a process of its own that stays warm between compiles, and say how a compile failed."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from neuron_runtime.compiler.errors import CompileFailure, FailureKind
from neuron_runtime.compiler.frames import MAX_PAYLOAD
from neuron_runtime.compiler.options import CompileOptions
from neuron_runtime.compiler.warm_worker import WarmWorker

if TYPE_CHECKING:
    from neuron_runtime.compiler.compile import CompiledNeff


class WarmCompiler:
    """Compiles one program at a time in a worker process, started on first use and replaced when it dies.

    Neither a crash of the compiler nor one that never returns reaches the caller: each is a CompileFailure of the
    fitting kind, and the next compile gets a fresh worker. Thread-safe; a forked child gets a worker of its own.
    The worker ends with `close`, and at the latest when the caller is gone, however it went.
    """

    def __init__(self, *, memory_limit: int | None = None) -> None:
        """`memory_limit` bounds a compile's memory, in bytes on top of an idle worker; None leaves it to the host."""
        self._worker = WarmWorker(
            "neuron_runtime.compiler.worker", name="the compiler", task="the compile", memory_limit=memory_limit
        )

    @property
    def worker_pid(self) -> int | None:
        """The process id of the worker while there is one."""
        return self._worker.pid

    def start(self) -> None:
        """Start the worker now, to spare the first compile about half a second. Raises CompileFailure."""
        self._worker.start()

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
        request = {"options": (options or CompileOptions()).to_json(), "name": name, "native": native}
        return _result(*self._worker.ask(request, ir, timeout=timeout))

    def close(self) -> None:
        """End the worker. A later compile starts another."""
        self._worker.close()

    def __enter__(self) -> WarmCompiler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _result(reply: dict[str, Any], neff: bytes) -> CompiledNeff:
    from neuron_runtime.compiler.compile import CompiledNeff
    from neuron_runtime.neff import NeffManifest

    return CompiledNeff(neff, NeffManifest.from_json(reply["manifest"]), reply["seconds"], tuple(reply["warnings"]))
