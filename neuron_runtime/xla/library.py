"""The pieces of jaxlib in use, imported on first use, and its exceptions translated in one place."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from neuron_runtime.xla.errors import XlaMissingError, translated


class Library:
    """jaxlib, imported (about 0.3 s). `load` gives the one instance of the process."""

    def __init__(self) -> None:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when the library loads; keeps warnings quiet
        try:
            import jaxlib
            from jaxlib import _jax, xla_client
            from jaxlib.mlir import ir, passmanager
            from jaxlib.mlir._mlir_libs import _jax_mlir_ext
            from jaxlib.mlir.dialects import chlo, mhlo, stablehlo
        except ImportError as error:
            raise XlaMissingError(
                f"XLA is not available: {error}", hint="type: pip install 'neuron-env[sim]'"
            ) from error
        self.version = str(jaxlib.__version__)
        self.jax = _jax
        self.xla_client = xla_client
        self.ir = ir
        self.stablehlo = stablehlo
        self._passmanager = passmanager
        self._register_dialects = _jax_mlir_ext.register_dialects
        self._load_dialects = (stablehlo.register_dialect, chlo.register_dialect, mhlo.register_mhlo_dialect)
        stablehlo.register_stablehlo_passes()
        # Without this switch jaxlib refuses host arrays (it is jax that sets it), and without True it would
        # truncate 64-bit types. jaxlib keeps a bare pointer to it, so it must live as long as the process.
        self._x64 = _jax.config.Config("enable_x64", True)
        _jax.jax_jit.set_enable_x64_state(self._x64)
        # jaxlib would walk the Python stack at every execution, for messages that nobody here reads.
        _jax.set_tracebacks_enabled(False)
        replicated = xla_client.HloSharding.replicate()

        class Sharding(_jax.SingleDeviceSharding):  # type: ignore[misc]
            memory_kind = None

            def _to_xla_hlo_sharding(self, ndim: int) -> Any:
                return replicated

        self.sharding = Sharding

    def context(self) -> Any:
        """An MLIR context with the dialects that jaxlib brings. Contexts share nothing, so threads may use them."""
        context = self.ir.Context()
        context.enable_multithreading(False)
        registry = self.ir.DialectRegistry()
        self._register_dialects(registry)
        context.append_dialect_registry(registry)
        for load_dialect in self._load_dialects:
            load_dialect(context)
        return context

    def run_passes(self, module: Any, pipeline: str) -> None:
        """Run the passes of `pipeline` (MLIR's textual form) on `module` in place."""
        with module.context:
            self._passmanager.PassManager.parse(f"builtin.module({pipeline})").run(module.operation)

    @contextmanager
    def translate(self, what: str) -> Iterator[None]:
        """What jaxlib raises becomes an XlaError that begins with `what`."""
        try:
            yield
        except (self.jax.JaxRuntimeError, self.ir.MLIRError, ValueError, TypeError, RuntimeError) as error:
            raise translated(what, error) from error

    @contextmanager
    def diagnostics(self, context: Any) -> Iterator[list[str]]:
        """Collects what MLIR says, which otherwise goes to file descriptor 2."""
        said: list[str] = []

        def keep(diagnostic: Any) -> bool:
            said.append(str(diagnostic))
            return True

        handler = context.attach_diagnostic_handler(keep)
        try:
            yield said
        finally:
            handler.detach()


_lock = threading.Lock()
_library: Library | None = None


def load() -> Library:
    """jaxlib, or XlaMissingError where it is not installed. Thread-safe."""
    global _library
    with _lock:
        if _library is None:
            _library = Library()
        return _library


def preload() -> None:
    """Import jaxlib now. With `OPENBLAS_NUM_THREADS=1` set that starts no thread, so a zygote may still fork."""
    load()
