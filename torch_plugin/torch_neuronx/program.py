"""A PyTorch call ready to be compiled: StableHLO, and how to feed and read what comes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neuron_runtime.tensors import TensorSpec
from torch_neuronx.captured import Captured, GraphInput, Mutation
from torch_neuronx.errors import LoweringError
from torch_neuronx.lowering import Lowered, lower

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Program:
    """Everything a caller needs besides a compiler and a runtime.

    Compile `stablehlo`; upload `weights()` once; for each call put `arguments(...)` at their input numbers, execute,
    store the outputs that `mutations` names over their inputs, and give all outputs to `result`.
    """

    captured: Captured
    lowered: Lowered

    @classmethod
    def build(
        cls,
        module: torch.nn.Module,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        bake_weights: bool = False,
    ) -> Program:
        """Capture and lower `module(*args, **kwargs)`; raises CaptureError or LoweringError."""
        from torch_neuronx.capturing import capture

        return cls.of(capture(module, args, kwargs, bake_weights=bake_weights))

    @classmethod
    def of(cls, captured: Captured) -> Program:
        lowered = lower(captured)
        wanted = tuple(entry.spec for entry in captured.inputs), captured.outputs
        if (lowered.inputs, lowered.outputs) != wanted:
            raise LoweringError("lowering changed the inputs or outputs of the graph", hint="report this as a bug")
        return cls(captured, lowered)

    @property
    def stablehlo(self) -> bytes:
        """Portable artifact; the identity of the program as far as a compile cache is concerned."""
        return self.lowered.stablehlo

    @property
    def inputs(self) -> tuple[GraphInput, ...]:
        return self.captured.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return self.captured.outputs

    @property
    def mutations(self) -> tuple[Mutation, ...]:
        """Which inputs the call overwrites: buffers such as a key-value cache, or arguments changed in place."""
        return self.captured.mutations

    def weights(self) -> dict[int, torch.Tensor]:
        """Parameters, buffers and large constants by input number, with the values they have now.

        Row-major CPU tensors; they share memory with the module's wherever those are so already.
        """
        return {number: tensor.detach().cpu().contiguous() for number, tensor in self.captured.weights.items()}

    def arguments(self, *args: Any, **kwargs: Any) -> dict[int, torch.Tensor]:
        """The tensors of a call by input number; InputMismatchError unless it has the form of the captured one."""
        specs = {number: entry.spec for number, entry in enumerate(self.inputs)}
        return self.captured.call.flatten(specs, args, kwargs)

    def result(self, outputs: Sequence[Any]) -> Any:
        """What the module would have returned, given every output of the graph in order (of any array type)."""
        if len(outputs) != len(self.outputs):
            raise ValueError(f"the program has {len(self.outputs)} outputs, not {len(outputs)}")
        return self.captured.call.unflatten(outputs)
