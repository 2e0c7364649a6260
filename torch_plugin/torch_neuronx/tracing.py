"""`torch_neuronx.trace`: a module compiled for its example's shapes and loaded, as a callable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from torch_neuronx.loaded import LoadedProgram


def trace(module: torch.nn.Module, example_inputs: Any, *, name: str | None = None) -> LoadedProgram:
    """The module on the current device, weights in HBM as they are now; call it with CPU tensors of these shapes.

    `example_inputs`: a tensor, a tuple of positional arguments, or a dict of keyword arguments, on the CPU. Compiled
    through the cache. Raises CaptureError, LoweringError, CompileFailure, NrtError.
    """
    import torch

    from torch_neuronx.build import compile_options
    from torch_neuronx.device.runtime import RUNTIME
    from torch_neuronx.eager.models import builder
    from torch_neuronx.loaded import DeviceWeights, LoadedProgram
    from torch_neuronx.program import Program

    torch.neuron.init()  # type: ignore[attr-defined]
    device = int(torch.neuron.current_device())  # type: ignore[attr-defined]
    session = RUNTIME.session
    label = name or type(module).__name__
    if isinstance(example_inputs, Mapping):
        program = Program.build(module, (), example_inputs)
    elif isinstance(example_inputs, (tuple, list)):
        program = Program.build(module, tuple(example_inputs))
    else:
        program = Program.build(module, (example_inputs,))
    result = builder().build(program, compile_options(session.target, session.lnc), label=label)
    return LoadedProgram(program, result.neff, DeviceWeights(session, device), name=label)
