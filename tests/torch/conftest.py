"""Programs executed by XLA itself, so that lowering is judged without the runtime."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from device_kit import DeviceHost


class XlaRunner:
    """Compiles a program's StableHLO and runs calls of it on the CPU, in this process."""

    def __init__(self) -> None:
        from neuron_runtime.xla import Xla

        self._xla = Xla()

    def compile(self, stablehlo: bytes) -> Callable[[list[Any]], list[Any]]:
        """NumPy arrays in, NumPy arrays out."""
        executable = self._xla.compile(self._xla.portable(stablehlo))

        def run(arrays: list[Any]) -> list[Any]:
            outputs = executable.execute([executable.alias(array) for array in arrays])
            return [executable.view(output).copy() for output in outputs]

        return run


class LoadedProgram:
    """A program with its weights bound; overwritten weights keep their new values from call to call."""

    def __init__(self, program: Any, run: Callable[[list[Any]], list[Any]]) -> None:
        from torch_neuronx.dtypes import to_numpy

        self.program = program
        self._run = run
        self._bound = {number: to_numpy(tensor) for number, tensor in program.weights().items()}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from torch_neuronx.dtypes import from_numpy, to_numpy

        arguments = self.program.arguments(*args, **kwargs)
        arrays = {**self._bound, **{number: to_numpy(tensor) for number, tensor in arguments.items()}}
        outputs = self._run([arrays[number] for number in range(len(self.program.inputs))])
        for spec, output in zip(self.program.outputs, outputs, strict=True):
            assert (spec.shape, spec.dtype) == (output.shape, output.dtype.name)
        for mutation in self.program.mutations:
            if mutation.input in self._bound:
                self._bound[mutation.input] = outputs[mutation.output]
            else:
                arguments[mutation.input].copy_(from_numpy(outputs[mutation.output]))
        return self.program.result([from_numpy(output) for output in outputs])


@pytest.fixture(scope="session")
def xla() -> XlaRunner:
    return XlaRunner()


@pytest.fixture(scope="session")
def load(xla: XlaRunner) -> Callable[..., LoadedProgram]:
    """`load(module, *args, **kwargs)` captures, lowers and compiles that call."""

    def build(module: Any, *args: Any, bake_weights: bool = False, **kwargs: Any) -> LoadedProgram:
        from torch_neuronx import Program

        program = Program.build(module, args, kwargs, bake_weights=bake_weights)
        return LoadedProgram(program, xla.compile(program.stablehlo))

    return build


@pytest.fixture(scope="session", autouse=True)
def one_core() -> Iterator[None]:
    """PyTorch asks for the number of devices once in a process, and any test may be the one that makes it ask."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NEURON_RT_NUM_CORES", "1")
        yield


@pytest.fixture(scope="session")
def device_host() -> Iterator[DeviceHost]:
    """A runtime and an empty cache for all tests of the device."""
    # pytest's own temporary paths are too long for a socket.
    directory = Path(tempfile.mkdtemp(prefix="nrt-"))
    host = DeviceHost(directory / "run", directory / "cache")
    try:
        yield host
    finally:
        host.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def neuron(device_host: DeviceHost) -> Iterator[Any]:
    """The module `torch.neuron`, with this process's device started."""
    import torch

    import torch_neuronx  # noqa: F401 - makes the device known where PyTorch was told not to look for it
    from neuron_runtime import client

    with pytest.MonkeyPatch.context() as patch:
        for name, value in device_host.settings().items():
            patch.setenv(name, value)
        torch.neuron.init()
        yield torch.neuron
        torch.neuron.synchronize()
        client.reset()


@pytest.fixture
def tracked(neuron: Any) -> Iterator[Any]:
    """Operator tracking that begins empty."""
    import torch_neuronx

    neuron.synchronize()
    torch_neuronx.clear_op_tracking()
    yield torch_neuronx
    neuron.synchronize()
