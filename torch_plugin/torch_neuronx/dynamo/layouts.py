"""Tensors as they lie in memory, wherever that is a permutation: undoing it inside a graph is cheaper than a copy."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch
import torch.fx

from torch_neuronx.dynamo.boundary import Boundary, Made, Operand, row_major
from torch_neuronx.dynamo.nodes import call, results_of
from torch_neuronx.eager.layout import layout_of


def lay_out(boundary: Boundary) -> Boundary:
    """The graph takes permuted operands, and gives permuted results, as PyTorch has them; all others are row-major."""
    if boundary.module is None:
        return boundary
    graph = boundary.module.graph
    operands = _operands(graph, boundary.operands)
    nodes: list[torch.fx.Node] = []
    made: list[Made] = []
    for node, entry in zip(results_of(graph), boundary.made, strict=True):
        order = _order(entry.sizes, entry.strides)
        with graph.inserting_before(graph.output_node()):
            if order is not None:
                node = call(graph, torch.ops.aten.permute.default, node, order)
            if node in nodes:  # one value for two tensors; lowering would return it once
                node = call(graph, torch.ops.aten.clone.default, node)
        nodes.append(node)
        made.append(entry if order is not None else dataclasses.replace(entry, strides=row_major(entry.sizes)))
    graph.output_node().args = (tuple(nodes),)
    return dataclasses.replace(boundary, operands=operands, made=tuple(made))


def _operands(graph: torch.fx.Graph, operands: Sequence[Operand]) -> tuple[Operand, ...]:
    placed: list[Operand] = []
    for node, operand in zip(graph.find_nodes(op="placeholder"), operands, strict=False):
        value = node.meta["val"]
        order = _order(tuple(value.shape), tuple(value.stride()))
        if order is None:
            placed.append(operand)
            continue
        readers = list(node.users)
        node.meta = {**node.meta, "val": value.permute(order)}
        node.meta.pop("tensor_meta", None)
        with graph.inserting_before(node.next):
            seen = call(graph, torch.ops.aten.permute.default, node, [order.index(dim) for dim in range(value.dim())])
        for reader in readers:
            reader.replace_input_with(node, seen)
        placed.append(dataclasses.replace(operand, strides=tuple(value.stride())))
    return tuple(placed)


def _order(sizes: Sequence[int], strides: Sequence[int]) -> list[int] | None:
    """The dimensions in the order of memory; None for row-major tensors, and for those that are no permutation."""
    layout = layout_of(sizes, strides)
    if not layout.as_it_lies or math.prod(layout.base) != math.prod(sizes):
        return None
    return [*layout.order, *(dim for dim in range(len(sizes)) if dim not in layout.order)]
