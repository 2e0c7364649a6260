"""Small things that every rewrite of a graph needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.fx


def copied(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Nodes and their metadata dictionaries anew, tensors shared."""
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    return torch.fx.GraphModule(module, graph)


def call(graph: torch.fx.Graph, target: Callable[..., Any], *args: Any, **kwargs: Any) -> torch.fx.Node:
    """A new node whose `meta["val"]` comes from running the operator on its arguments' fake tensors."""
    node = graph.call_function(target, args, kwargs)
    fake_args, fake_kwargs = torch.fx.node.map_arg((args, kwargs), lambda argument: argument.meta["val"])
    node.meta["val"] = target(*fake_args, **fake_kwargs)
    return node


def results_of(graph: torch.fx.Graph) -> tuple[Any, ...]:
    """What the graph returns, in order."""
    (values,) = graph.output_node().args
    return tuple(values)  # type: ignore[arg-type]
