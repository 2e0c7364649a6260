"""Which operators of a graph are to blame when it does not lower."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch_neuronx.mlir import MlirError, stablehlo_of
from torch_neuronx.places import operator_of, place_of

if TYPE_CHECKING:
    import torch.fx


@dataclass(frozen=True)
class Unsupported:
    """One operator that does not lower, where the user's source first calls it so, and what torch-mlir said."""

    operator: str
    place: str | None
    reason: str


def unsupported(module: torch.fx.GraphModule) -> tuple[Unsupported, ...]:
    """Lower each distinct operator of the graph alone.

    MLIR stops at the first failure, often at a constant beside the culprit; a reader who ports a model wants all of
    them. Costs some milliseconds an operator, on the way to an error.
    """
    import torch

    found: list[Unsupported] = []
    seen: set[str] = set()
    for node in module.graph.nodes:
        if node.op != "call_function" or getattr(node.target, "__module__", "") == "_operator":
            continue
        if not isinstance(node.target, torch._ops.OpOverload):
            found.append(Unsupported(operator_of(node), place_of(node), "a higher-order operator"))
            continue
        signature = _signature(node)
        if signature in seen:
            continue
        seen.add(signature)
        try:
            stablehlo_of(_alone(node))
        except MlirError as error:
            found.append(Unsupported(operator_of(node), place_of(node), error.diagnostics[0].message))
    return tuple(found)


def _signature(node: torch.fx.Node) -> str:
    import torch.fx

    def describe(argument: torch.fx.Node) -> Any:
        value = argument.meta.get("val")
        return f"<{getattr(value, 'dtype', value)} {getattr(value, 'shape', '')}>"

    args = torch.fx.node.map_arg((node.args, node.kwargs), describe)
    return f"{node.target} {args}"


def _alone(node: torch.fx.Node) -> torch.fx.GraphModule:
    """A graph of this one call, its tensor arguments as inputs."""
    import operator

    import torch

    graph = torch.fx.Graph()
    inputs: dict[torch.fx.Node, torch.fx.Node] = {}

    def placeholder(argument: torch.fx.Node) -> torch.fx.Node:
        if argument not in inputs:
            inputs[argument] = graph.placeholder(argument.name)
            inputs[argument].meta.update(argument.meta)
        return inputs[argument]

    torch.fx.node.map_arg((node.args, node.kwargs), placeholder)  # placeholders come before the call
    call = graph.node_copy(node, placeholder)
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        graph.output((call,))
    else:
        results = []
        for number, part in enumerate(value or ()):
            if isinstance(part, torch.Tensor):
                results.append(graph.call_function(operator.getitem, (call, number)))
                results[-1].meta["val"] = part
        graph.output(tuple(results))
    return torch.fx.GraphModule({}, graph)
