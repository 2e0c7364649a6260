"""Tensors that the graph makes lie in memory as PyTorch would have laid them, wherever that is a permutation."""

from __future__ import annotations

import dataclasses
import math

import torch
import torch.fx

from torch_neuronx.dynamo.boundary import Boundary, Made, row_major
from torch_neuronx.dynamo.nodes import call, results_of
from torch_neuronx.eager.layout import layout_of


def lay_out(boundary: Boundary) -> Boundary:
    """Permute results in the graph, which costs less than a copy after it; others become row-major."""
    if boundary.module is None:
        return boundary
    graph = boundary.module.graph
    nodes: list[torch.fx.Node] = []
    made: list[Made] = []
    for node, entry in zip(results_of(graph), boundary.made, strict=True):
        layout = layout_of(entry.sizes, entry.strides)
        if not layout.as_it_lies or math.prod(layout.base) != math.prod(entry.sizes):
            made.append(dataclasses.replace(entry, strides=row_major(entry.sizes)))
            nodes.append(node)
            continue
        kept = list(layout.order)
        order = kept + [dim for dim in range(len(entry.sizes)) if dim not in kept]
        with graph.inserting_before(graph.output_node()):
            nodes.append(call(graph, torch.ops.aten.permute.default, node, order))
        made.append(entry)
    for number, node in enumerate(nodes):
        if node in nodes[:number]:  # one value for two tensors; lowering would return it once
            with graph.inserting_before(graph.output_node()):
                nodes[number] = call(graph, torch.ops.aten.clone.default, node)
    graph.output_node().args = (tuple(nodes),)
    return dataclasses.replace(boundary, made=tuple(made))
