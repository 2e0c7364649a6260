"""Static shapes only: Dynamo's symbols become the numbers they stand for, unless the user asked for symbols."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

from torch_neuronx.dynamo.errors import DynamicShapesError

_SYMBOLS = (torch.SymInt, torch.SymBool)


def make_static(
    module: torch.fx.GraphModule, inputs: Sequence[Any]
) -> tuple[torch.fx.GraphModule, list[Any], list[int]]:
    """The graph without symbolic numbers, its inputs, and which of the former inputs they are.

    Dynamo generalises a size when it changes from call to call; here each size is a graph of its own, so the symbol is
    pinned to its present value, and a guard of Dynamo's sees to it that another value compiles again. Raises
    DynamicShapesError when the user asked for dynamic shapes (`dynamic=True`, `mark_dynamic`), or when a size depends
    on the values of tensors.
    """
    # Dynamo may hand over the user's own tensors, which have plain sizes; what it traced with tells.
    traced = [node.meta.get("example_value") for node in module.graph.find_nodes(op="placeholder")]
    _refuse_dynamic(traced)
    if not any(map(_symbolic_sizes, traced)) and not any(isinstance(value, _SYMBOLS) for value in inputs):
        return module, list(inputs), list(range(len(inputs)))
    graph = torch.fx.Graph()
    graph.output(graph.graph_copy(module.graph, {}))
    static = torch.fx.GraphModule(module, graph)
    static.meta = dict(module.meta)
    kept: list[int] = []
    values: list[Any] = []
    for number, (node, value, example) in enumerate(
        zip(graph.find_nodes(op="placeholder"), inputs, traced, strict=True)
    ):
        if isinstance(value, _SYMBOLS):
            node.replace_all_uses_with(_pinned(value))
            graph.erase_node(node)
            continue
        kept.append(number)
        values.append(_with_static_sizes(example) if _symbolic_sizes(example) else value)
        node.meta["example_value"] = values[-1]
    static.recompile()
    return static, values, kept


def _pinned(value: Any) -> int | bool:
    """Asking a symbol for its value is what makes Dynamo guard it."""
    try:
        return bool(value) if isinstance(value, torch.SymBool) else int(value)
    except Exception as error:
        raise _refusal([str(value)]) from error


def _with_static_sizes(value: torch.Tensor) -> torch.Tensor:
    sizes = [_pinned_size(size) for size in value.shape]
    strides = [_pinned_size(stride) for stride in value.stride()]
    with torch.no_grad():
        same = value.as_strided(sizes, strides, _pinned_size(value.storage_offset())).detach()
    return same.requires_grad_(value.requires_grad)


def _pinned_size(size: Any) -> int:
    return int(_pinned(size)) if isinstance(size, torch.SymInt) else int(size)


def _symbolic_sizes(value: Any) -> bool:
    if not isinstance(value, torch.Tensor):
        return False
    numbers = (*value.shape, *value.stride()) if value.layout is torch.strided else tuple(value.shape)
    return any(isinstance(number, torch.SymInt) for number in numbers)


def _refuse_dynamic(inputs: Sequence[Any]) -> None:
    import torch._dynamo.config as config

    everything = not config.assume_static_by_default
    if everything or _marks_dimensions():
        found = [
            f"input {number}, dimension {dim} ({size})"
            for number, value in enumerate(inputs)
            if isinstance(value, torch.Tensor)
            for dim, size in enumerate(value.shape)
            if isinstance(size, torch.SymInt)
        ]
        if everything or found:
            raise _refusal(found)


def _marks_dimensions() -> bool:
    """Whether `torch._dynamo.mark_dynamic` was called for an input."""
    context = torch._guards.TracingContext.try_get()
    symbolic = () if context is None else context.tensor_to_context.values()
    constraints = (one for entry in symbolic for one in getattr(entry, "constraint_sizes", None) or ())
    # Dynamo's own guesses may be given up with a warning; what the user wrote may not.
    return any(constraint is not None and not constraint.warn_only for constraint in constraints)


def _refusal(found: Sequence[str]) -> DynamicShapesError:
    lines = "".join(f"\n  {line}" for line in found)
    return DynamicShapesError(
        "Dynamic shapes detected in the model, but torch-neuronx requires static shapes. "
        f"Found {len(found)} dynamic dimension(s){':' if found else ''}{lines}",
        hint="compile with dynamic=False, do not mark dimensions as dynamic, and pad inputs to a few fixed shapes",
    )
