"""Numbers of 64 bits as the device has them: double precision becomes single, and int64 wraps at the boundary.

As in eager mode this concerns tensors with dimensions, and results keep the dtypes that the program gave them. int64
stays the type inside, since PyTorch asks for it in indices.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
import torch.fx
from torch.utils._pytree import tree_map

from torch_neuronx.dynamo.nodes import call, results_of

_NARROW = {torch.float64: torch.float32, torch.complex128: torch.complex64}


def narrow(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph with 64-bit numbers narrowed; `module` is changed in place, or another takes its place."""
    if any(_is_double(value) for node in module.graph.nodes for value in _tensors(node)):
        module = _single_precision(module)
    _wrap_integers(module.graph)
    return module


def _wrap_integers(graph: torch.fx.Graph) -> None:
    for node in graph.find_nodes(op="placeholder"):
        if _is_long(node) and node.users:
            readers = list(node.users)
            with graph.inserting_before(node.next):
                wrapped = _wrapped(graph, node)
            for reader in readers:
                reader.replace_input_with(node, wrapped)
    results = []
    for node in results_of(graph):
        with graph.inserting_before(graph.output_node()):
            results.append(_wrapped(graph, node) if _is_long(node) else node)
    graph.output_node().args = (tuple(results),)


def _wrapped(graph: torch.fx.Graph, node: torch.fx.Node) -> torch.fx.Node:
    convert = torch.ops.aten._to_copy.default
    return call(graph, convert, call(graph, convert, node, dtype=torch.int32), dtype=torch.int64)


def _is_long(node: torch.fx.Node) -> bool:
    value = node.meta["val"]
    return value.dtype is torch.int64 and value.dim() > 0


def _single_precision(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    from torch._guards import detect_fake_mode
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.traceback import preserve_node_meta

    inputs = [node.meta["val"] for node in module.graph.find_nodes(op="placeholder")]
    wanted = [node.meta["val"].dtype for node in results_of(module.graph)]
    runner = _Narrow(module)

    def traced(*arguments: torch.Tensor) -> list[torch.Tensor]:
        results = runner.run(*map(_narrowed, arguments))
        return [value.to(dtype) for value, dtype in zip(results, wanted, strict=True)]

    mode = detect_fake_mode([value for node in module.graph.nodes for value in _tensors(node)])
    with torch.no_grad(), preserve_node_meta(), mode or contextlib.nullcontext():
        return make_fx(traced)(*inputs)


def _tensors(node: torch.fx.Node) -> list[torch.Tensor]:
    value = node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else (value,)
    return [part for part in values if isinstance(part, torch.Tensor)]


def _is_double(value: torch.Tensor) -> bool:
    return value.dim() > 0 and value.dtype in _NARROW


def _narrowed(value: Any) -> Any:
    return value.to(_NARROW[value.dtype]) if isinstance(value, torch.Tensor) and value.dtype in _NARROW else value


class _Narrow(torch.fx.Interpreter):
    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        args, kwargs = tree_map(
            lambda value: _NARROW.get(value, value) if isinstance(value, torch.dtype) else value, (args, kwargs)
        )
        return super().call_function(target, args, kwargs)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return _narrowed(super().get_attr(target, args, kwargs))
