"""The XLA:CPU client: programs in, executables out."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

from neuron_runtime.cpu import CpuIdentity, host_cpu
from neuron_runtime.tensors import TensorSpec
from neuron_runtime.xla.errors import XlaError
from neuron_runtime.xla.executable import Executable
from neuron_runtime.xla.library import Library, load
from neuron_runtime.xla.program import Program


class Xla:
    """One XLA:CPU client in this process, made on first use and made anew after a fork. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = -1
        self._client: Any = None

    @property
    def version(self) -> str:
        return f"jaxlib {load().version}"

    @property
    def native_format(self) -> str:
        """Names what `Executable.serialize` gives; only an equal format can be loaded."""
        return f"xla:cpu {self.version}"

    def accepts(self, native_format: str, cpu: CpuIdentity) -> bool:
        """Can native code of that format, generated on `cpu`, be loaded and run here?"""
        return native_format == self.native_format and host_cpu().supports(cpu)

    def start(self) -> None:
        """Make the client now, not on first use (about 10 ms). It starts threads: do not fork afterwards."""
        load()
        self._devices()

    def portable(self, ir: bytes) -> bytes:
        """The canonical form of a program: a StableHLO portable artifact.

        Takes StableHLO (text, MLIR bytecode, portable artifact) and HLO (protobuf, text). Programs that differ
        only in locations, labels of modules and arguments, or in the format, give equal bytes.
        Raises XlaError when the program cannot be read or holds what the compiler cannot take.
        """
        program = Program.read(load(), ir)
        program.canonicalise()
        program.signature()
        return program.serialize()

    def compile(self, portable: bytes, opt_level: int = 2) -> Executable:
        """Generate code for this host's CPU. `opt_level` is LLVM's, 0 to 3. Raises XlaError."""
        lib = load()
        program = Program.read(lib, portable)
        inputs, outputs, aliases = program.signature()
        # XLA would donate an aliased input: invalidate the caller's handle and, not owning the memory, copy
        # all the same. So aliases are left to the runtime, which copies the output into the input's memory.
        program.drop_aliases()
        with lib.translate("the program cannot be compiled"):
            client, devices = self._devices()
            options = lib.jax.CompileOptions()
            options.env_option_overrides = [("xla_backend_optimization_level", str(opt_level))]
            loaded = client.compile_and_load(program.serialize(), devices, options)
        return Executable(lib, loaded, devices, inputs, outputs, aliases)

    def load(
        self,
        native: bytes,
        inputs: Sequence[TensorSpec] | None = None,
        outputs: Sequence[TensorSpec] | None = None,
        aliases: Sequence[tuple[int, int]] = (),
    ) -> Executable:
        """Load what `Executable.serialize` gave, on a CPU with the same features. Raises XlaError.

        Native code runs with the rights of this process: load only what you trust. Without `inputs` and
        `outputs` the executable's own are read, which is slower; its aliases only the caller knows.
        """
        lib = load()
        with lib.translate("the native code cannot be loaded"):
            client, devices = self._devices()
            loaded = client.deserialize_executable(native, devices)
            if inputs is None or outputs is None:
                own_inputs, own_outputs = _loaded_signature(lib, loaded)
                inputs = own_inputs if inputs is None else inputs
                outputs = own_outputs if outputs is None else outputs
        return Executable(lib, loaded, devices, tuple(inputs), tuple(outputs), tuple(aliases), len(native))

    def collect(self) -> None:
        """Let go now of host arrays whose handles are gone; XLA otherwise does so at some later call."""
        load().jax.collect_garbage()

    def _devices(self) -> tuple[Any, list[Any]]:
        with self._lock:
            if self._pid != os.getpid():
                self._client = load().xla_client.make_cpu_client(asynchronous=False)
                self._pid = os.getpid()
            return self._client, self._client.devices()[:1]


def _loaded_signature(lib: Library, loaded: Any) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    modules = loaded.hlo_modules()
    if len(modules) != 1:
        raise XlaError(f"the native code holds {len(modules)} programs, not one")
    shape = lib.xla_client.XlaComputation(modules[0].as_serialized_hlo_module_proto()).program_shape()
    result = shape.result_shape()

    def specs(label: str, shapes: list[Any]) -> tuple[TensorSpec, ...]:
        return tuple(
            TensorSpec(f"{label}{i}", tuple(s.dimensions()), s.numpy_dtype().name) for i, s in enumerate(shapes)
        )

    outputs = result.tuple_shapes() if result.is_tuple() else [result]
    return specs("input", shape.parameter_shapes()), specs("output", outputs)
