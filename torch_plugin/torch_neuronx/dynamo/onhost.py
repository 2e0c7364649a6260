"""A graph of operators, run on the host."""

from __future__ import annotations

from typing import Any

import torch
import torch.fx
from torch.utils._pytree import tree_map

from torch_neuronx.dynamo.nodes import copied, results_of


class OnHost:
    """Takes and gives what a compiled graph does; results go where the traced program had them."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        self._boxed_call = True
        self._module = copied(module)
        self._devices = [
            node.meta["val"].device if isinstance(node, torch.fx.Node) else None for node in results_of(module.graph)
        ]
        for node in self._module.graph.nodes:
            node.args, node.kwargs = tree_map(_on_host, (node.args, node.kwargs))
        self._module.recompile()

    def __call__(self, arguments: list[Any]) -> list[Any]:
        given = [value.cpu() if isinstance(value, torch.Tensor) else value for value in arguments]
        arguments.clear()
        with torch.no_grad():
            results = self._module(*given)
        return [
            value.to(device) if isinstance(value, torch.Tensor) else value
            for value, device in zip(results, self._devices, strict=True)
        ]


def _on_host(value: Any) -> Any:
    return torch.device("cpu") if isinstance(value, torch.device) else value
