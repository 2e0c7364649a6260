"""A captured graph becomes StableHLO."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from neuron_runtime.tensors import TensorSpec
from torch_neuronx.calls import Leaf
from torch_neuronx.captured import Captured
from torch_neuronx.dtypes import spec_of
from torch_neuronx.errors import LoweringError
from torch_neuronx.passes import PASSES, Pass, drop_results_that_are_no_tensors, hide_constants

if TYPE_CHECKING:
    import torch.fx

    from torch_neuronx.mlir import MlirError

_ILLEGAL_HINT = (
    "compute this step outside the captured module, or write it with operators that lower; "
    "the rest of the graph is not affected"
)


@dataclass(frozen=True)
class Lowered:
    """`@main` of a StableHLO module.

    `stablehlo`: portable artifact without locations; equal programs give equal bytes on every host.
    `outputs`: tensors, in order. `results`: what each result of the FX graph is, an output or a plain value.
    """

    stablehlo: bytes = field(repr=False)
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    results: tuple[Leaf, ...]

    def text(self) -> str:
        """The module as readable StableHLO."""
        from torch_neuronx.mlir import text_of

        return text_of(self.stablehlo)


def lower(captured: Captured) -> Lowered:
    """StableHLO of a captured module; LoweringError names the operator that has none and where it was called."""
    return lower_graph(captured.graph_module)


def lower_graph(module: torch.fx.GraphModule, *, passes: Sequence[Pass] = PASSES) -> Lowered:
    """StableHLO of a flat functional graph of ATen operators, as capture or AOTAutograd makes them.

    Placeholders must be tensors with static shapes whose `meta["val"]` says so; `module` itself is not changed.
    """
    from torch_neuronx.mlir import MlirError, expand_as_strided, stablehlo_of

    copy = _copy(module)
    results = drop_results_that_are_no_tensors(copy)
    for rewrite in passes:
        rewrite(copy)
    expand_as_strided(copy)
    copy.graph.eliminate_dead_code()
    inputs = _specs("input", copy.graph.find_nodes(op="placeholder"))
    outputs = _specs("output", copy.graph.output_node().args[0])
    opaque = _copy(copy)
    constants = hide_constants(opaque)
    try:
        stablehlo = stablehlo_of(opaque, constants)
    except MlirError as error:
        raise _explain(error, copy) from error
    return Lowered(stablehlo, inputs, outputs, results)


def _copy(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Nodes and their metadata dictionaries anew, tensors shared."""
    import torch.fx

    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    return torch.fx.GraphModule(module, graph)


def _specs(stem: str, nodes: Sequence[torch.fx.Node]) -> tuple[TensorSpec, ...]:
    import torch

    specs = []
    for number, node in enumerate(nodes):
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            raise LoweringError(
                f"{stem} {number} of the graph (`{node.name}`) is no tensor",
                hint="capture the graph with static shapes, so that numbers become constants",
            )
        try:
            specs.append(spec_of(f"{stem}{number}", value))
        except ValueError as error:
            raise LoweringError(
                f"{stem} {number} of the graph (`{node.name}`): {error}",
                hint="convert the tensor to another dtype inside the graph",
            ) from error
    return tuple(specs)


def _explain(error: MlirError, module: torch.fx.GraphModule) -> LoweringError:
    from torch_neuronx.diagnosis import unsupported

    found = unsupported(module)
    if not found:
        return LoweringError(
            f"the graph has no StableHLO form: {error.diagnostics[0].message}",
            hint="lower parts of the module one by one to find the one at fault",
        )
    lines = [f"`{entry.operator}` ({entry.place or 'place unknown'})" for entry in found]
    if len(found) == 1:
        message = f"{lines[0]} has no StableHLO form: {found[0].reason}"
    else:
        message = "\n  ".join([f"{len(found)} operators have no StableHLO form:", *lines])
    return LoweringError(message, hint=_ILLEGAL_HINT, unsupported=found)
