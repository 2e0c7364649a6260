"""What can go wrong between a PyTorch module and its StableHLO."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuron_runtime.errors import NeuronEnvError

if TYPE_CHECKING:
    from torch_neuronx.diagnosis import Unsupported


class FactoryError(NeuronEnvError):
    """`MODULE:FACTORY` does not lead to a module and example inputs."""


class CaptureError(NeuronEnvError):
    """The program has no static, functional graph for these example inputs."""


class InputMismatchError(NeuronEnvError):
    """A call differs in structure, shape, dtype or constant from what the program was captured with."""


class LoweringError(NeuronEnvError):
    """A graph has no StableHLO form.

    `unsupported`: the operators at fault, each with its place in the user's source; empty when the failure belongs to
    the graph as a whole.
    """

    def __init__(self, message: str, *, hint: str | None = None, unsupported: tuple[Unsupported, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.unsupported = unsupported
