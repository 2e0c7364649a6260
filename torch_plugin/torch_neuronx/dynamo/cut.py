"""A graph of AOTAutograd's, cut down to what the device computes.

Tensors that the graph only hands on stay where they are, which spares a copy of every weight that the backward pass
wants; what it overwrites becomes a result; numbers on the host travel inside the command.
"""

from __future__ import annotations

import collections
from typing import Any

import torch
import torch.fx

from torch_neuronx.dynamo.boundary import (
    OFFSET,
    SEED,
    Boundary,
    Fresh,
    Handed,
    Made,
    Number,
    Operand,
    Plain,
    Result,
    View,
    row_major,
)
from torch_neuronx.dynamo.errors import NEFFCompilationError
from torch_neuronx.dynamo.nodes import call, copied, results_of
from torch_neuronx.places import operator_of, place_of


def cut(module: torch.fx.GraphModule) -> Boundary:
    """`module` itself is not changed. Raises NEFFCompilationError for what no functional graph can express."""
    return _Cut(copied(module)).run()


class _Cut:
    def __init__(self, module: torch.fx.GraphModule) -> None:
        self.module = module
        self.graph = module.graph
        self.arguments: list[torch.fx.Node] = list(self.graph.find_nodes(op="placeholder"))
        self.number_of = {node: number for number, node in enumerate(self.arguments)}
        self.random: dict[torch.fx.Node, int] = {}
        self.computed: list[torch.fx.Node] = []
        self.made: list[Made] = []

    def run(self) -> Boundary:
        self._stay_on_device()
        overwritten = self._take_mutations()
        owners = self._owners(overwritten)
        drawn = self._draw()
        results = tuple(self._result(value, owners) for value in results_of(self.graph))
        for target, value in overwritten.items():
            self._make(value, target)
        self.graph.output_node().args = (tuple(self.computed),)
        self.graph.eliminate_dead_code()
        if not self.computed:
            return Boundary(None, (), (), (), results)
        operands, numbers = self._sort_placeholders()
        self.graph.lint()
        self.module.recompile()
        return Boundary(self.module, operands, numbers, tuple(self.made), results, drawn)

    def _stay_on_device(self) -> None:
        """A move between devices is a copy here; the fake tensor still tells where a result has to go."""
        for node in self.graph.find_nodes(op="call_function", target=torch.ops.prims.device_put.default):
            node.target = torch.ops.aten.clone.default
            node.args, node.kwargs = node.args[:1], {}

    def _take_mutations(self) -> dict[torch.fx.Node, torch.fx.Node]:
        """Removes the copies into arguments; the last value of each argument that is overwritten."""
        found: dict[torch.fx.Node, torch.fx.Node] = {}
        for node in list(self.graph.nodes):
            if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
                continue
            if node.target is torch.ops.aten.copy_.default and node.args[0] in self.number_of:
                target, value = node.args[:2]
                with self.graph.inserting_before(node):
                    value = self._as_copied(value, target.meta["val"])
                found[target] = value
                node.replace_all_uses_with(value)
                self.graph.erase_node(node)
            elif node.target._schema.is_mutable:
                raise NEFFCompilationError(
                    f"`{operator_of(node)}` changes its argument in place ({place_of(node) or 'place unknown'})",
                    hint="write the step without it, or outside the compiled function",
                )
        return found

    def _as_copied(self, value: torch.fx.Node, wanted: torch.Tensor) -> torch.fx.Node:
        """In the dtype and sizes that `copy_` makes of it."""
        aten = torch.ops.aten
        if value.meta["val"].dtype != wanted.dtype:
            value = call(self.graph, aten._to_copy.default, value, dtype=wanted.dtype)
        if value.meta["val"].shape != wanted.shape:
            value = call(self.graph, aten.expand.default, value, list(wanted.shape))
        return value

    def _owners(self, overwritten: dict[torch.fx.Node, torch.fx.Node]) -> dict[int, torch.fx.Node]:
        """The node that a storage begins with: an argument that nothing overwrites, or, where several results share
        it, the operator that makes it. Results that are views of one tensor stay views of one tensor."""
        spoiled = {_storage(node.meta["val"]) for node in overwritten}
        returned = {node for node in results_of(self.graph) if isinstance(node, torch.fx.Node)}
        sharing = collections.Counter(
            _storage(node.meta["val"]) for node in returned if _is_strided(node.meta.get("val"))
        )
        found: dict[int, torch.fx.Node] = {}
        for node in self.graph.nodes:
            value = node.meta.get("val")
            if not _is_strided(value) or _storage(value) in spoiled:
                continue
            if node in self.number_of or sharing[_storage(value)] > 1:
                found.setdefault(_storage(value), node)
        return found

    def _result(self, node: Any, owners: dict[int, torch.fx.Node]) -> Result:
        if not isinstance(node, torch.fx.Node):
            return Plain(node)
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor):
            raise NEFFCompilationError(
                f"the graph returns a number (`{node.name}`), not a tensor", hint="return it as a tensor"
            )
        owner = owners.get(_storage(value)) if _is_strided(value) else None
        if owner is None or not _same_kind(value, owner.meta["val"]):
            return Fresh(self._make(node, None), value.device)
        view = None if node is owner else _view(value, owner.meta["val"])
        if owner in self.number_of:
            return Handed(self.number_of[owner], view)
        return Fresh(self._make(owner, None), value.device, view)

    def _make(self, node: torch.fx.Node, target: torch.fx.Node | None) -> int:
        if target is None and node in self.computed:
            return self.computed.index(node)
        value = (target or node).meta["val"]
        number = None if target is None else self.number_of[target]
        self.computed.append(node)
        self.made.append(Made(number, tuple(value.shape), tuple(value.stride()), value.dtype))
        return len(self.computed) - 1

    def _draw(self) -> int:
        """Gives the graph a seed and an offset where it draws random numbers; how many it draws."""
        ops, aten = torch.ops.torch_neuronx, torch.ops.aten
        seeds = self.graph.find_nodes(op="call_function", target=ops.random_seed.default)
        offsets = self.graph.find_nodes(op="call_function", target=ops.random_offset.default)
        if not seeds and not offsets:
            return 0
        first = self.arguments[-1].next if self.arguments else next(iter(self.graph.nodes))
        with self.graph.inserting_before(first):
            seed, offset = self.graph.placeholder("random_seed"), self.graph.placeholder("random_offset")
        seed.meta["val"] = offset.meta["val"] = (seeds + offsets)[0].meta["val"]
        self.random = {seed: SEED, offset: OFFSET}
        for node in seeds:
            node.replace_all_uses_with(seed)
            self.graph.erase_node(node)
        drawn = 0
        for node in sorted(offsets, key=lambda node: node.args[0]):  # as the program drew
            with self.graph.inserting_before(node):
                begin = call(self.graph, aten.add.Scalar, offset, drawn) if drawn else offset
            node.replace_all_uses_with(begin)
            drawn += node.args[1]
            self.graph.erase_node(node)
        return drawn

    def _sort_placeholders(self) -> tuple[tuple[Operand, ...], tuple[Number, ...]]:
        """Tensors first, numbers last; what nothing reads goes."""
        operands: dict[torch.fx.Node, Operand] = {}
        numbers: dict[torch.fx.Node, Number] = {}
        for node in self.graph.find_nodes(op="placeholder"):
            value = node.meta.get("val")
            if not node.users:
                self.graph.erase_node(node)
            elif not isinstance(value, torch.Tensor):
                raise NEFFCompilationError(f"the graph takes a number (`{node.name}`), not a tensor")
            elif node in self.random:
                numbers[node] = Number(self.random[node], torch.int64)
            elif value.device.type == "cpu" and value.dim() == 0 and not value.is_complex():
                numbers[node] = Number(self.number_of[node], value.dtype)
            else:
                operands[node] = Operand(self.number_of[node], row_major(value.shape))
        anchor = next(iter(self.graph.nodes))
        for node in (*operands, *numbers):
            if node is anchor:
                anchor = node.next
            else:
                anchor.prepend(node)
        return tuple(operands.values()), tuple(numbers.values())


def _is_strided(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def _same_kind(value: torch.Tensor, whole: torch.Tensor) -> bool:
    return value.dtype == whole.dtype and value.is_conj() == whole.is_conj() and value.is_neg() == whole.is_neg()


def _view(value: torch.Tensor, whole: torch.Tensor) -> View:
    offset = int(value.storage_offset()) - int(whole.storage_offset())
    return View(tuple(whole.stride()), tuple(value.shape), tuple(value.stride()), offset)


def _storage(value: torch.Tensor) -> int:
    return int(value.untyped_storage()._cdata)
