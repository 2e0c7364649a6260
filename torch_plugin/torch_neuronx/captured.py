"""What capture hands to lowering: a flat graph and the meaning of its inputs and outputs."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from neuron_runtime.tensors import TensorSpec
from torch_neuronx.calls import Call

if TYPE_CHECKING:
    import torch
    import torch.fx


class Role(enum.Enum):
    """Who provides an input."""

    PARAMETER = "parameter"
    BUFFER = "buffer"
    CONSTANT = "constant"
    USER = "user"

    @property
    def is_weight(self) -> bool:
        """Bound once, when the program is loaded, rather than given with each call."""
        return self is not Role.USER


@dataclass(frozen=True)
class GraphInput:
    """One input of the graph. `source` is the parameter's or buffer's qualified name, or the argument's name."""

    spec: TensorSpec
    role: Role
    source: str


@dataclass(frozen=True)
class Mutation:
    """The call overwrites input number `input` with output number `output`."""

    output: int
    input: int


@dataclass(frozen=True)
class Captured:
    """A functional graph with static shapes.

    `graph_module`: placeholder i is the tensor `inputs[i]`, result j the tensor `outputs[j]`; there are no others.
    Weights come before user inputs. Weights that nothing reads are left out; user inputs never are.
    `weights`: the live tensors of the module by input number, not copies.
    """

    graph_module: torch.fx.GraphModule
    inputs: tuple[GraphInput, ...]
    outputs: tuple[TensorSpec, ...]
    mutations: tuple[Mutation, ...]
    call: Call
    weights: Mapping[int, torch.Tensor]
