"""A PyTorch module becomes one flat, functional graph of tensors with static shapes."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch_neuronx.captured import Captured
from torch_neuronx.errors import CaptureError
from torch_neuronx.places import operator_of, place_of

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

_STATIC_HINT = (
    "every shape must follow from the example inputs: replace operators whose result size depends on values "
    "(nonzero, masked_select, boolean indexing, .item()) by torch.where or multiplication with a mask"
)
_VALUE_DEPENDENT = ("data-dependent", "data dependent", "unbacked", "dynamic shape")
# What torch.export trips over when a call overwrites memory that the module knows under two names.
_SHARED_MEMORY = ("expected compiled_fn to be GraphModule", "Aliased inputs share storage")


def capture(
    module: torch.nn.Module,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    bake_weights: bool = False,
) -> Captured:
    """Capture `module(*args, **kwargs)` for inference, in the module's present train or eval mode.

    Parameters and buffers become inputs of the graph, so that programs which differ in their values alone share one
    compiled form. With `bake_weights` those that the call does not overwrite become constants instead: the compiler
    may fold them, and every set of weights is a program of its own.

    Python numbers, strings and None among the arguments are fixed at their present values. CaptureError when a shape
    depends on values, when the module cannot be traced, or when a tensor has a form a NEFF cannot hold.
    """
    from torch_neuronx.flatten import flatten

    exported = _export(module, args, dict(kwargs or {}))
    _require_static(exported)
    return flatten(exported, bake_weights=bake_weights)


def _export(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ExportedProgram:
    import torch

    from torch_neuronx.decompositions import decompositions

    name = type(module).__name__
    try:
        with torch.no_grad(), _quiet_export():
            exported = torch.export.export(module, args, kwargs, strict=False)
            return exported.run_decompositions(decompositions())
    except Exception as error:
        text = str(error).strip()
        reason = f"{type(error).__name__}: {text.partition(chr(10))[0] or 'no message'}"
        if any(mark in text.lower() for mark in _VALUE_DEPENDENT):
            raise CaptureError(
                f"cannot capture {name}, since a shape or a branch depends on tensor values: {reason}",
                hint=_STATIC_HINT,
            ) from error
        pair = _shared_memory(module) if any(mark in text for mark in _SHARED_MEMORY) else None
        if pair is not None:
            raise CaptureError(
                f"cannot capture {name}, since the call overwrites memory that `{pair[0]}` and `{pair[1]}` share",
                hint="register one of the two, and derive the other from it in forward()",
            ) from error
        raise CaptureError(
            f"cannot capture {name}: {reason}",
            hint="call the module with these inputs on the CPU; if that works, `--debug` shows where tracing fails",
        ) from error


def _shared_memory(module: torch.nn.Module) -> tuple[str, str] | None:
    """The names of a buffer and of another buffer or parameter that overlap in memory."""
    buffers = dict(module.named_buffers(remove_duplicate=False))
    extents = {}
    for name, tensor in {**dict(module.named_parameters(remove_duplicate=False)), **buffers}.items():
        first = tensor.data_ptr()
        last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        extents[name] = (first, first + (last + 1) * tensor.element_size()) if tensor.numel() else (0, 0)
    for one, other in itertools.combinations(extents, 2):
        overlap = max(extents[one][0], extents[other][0]) < min(extents[one][1], extents[other][1])
        if overlap and (one in buffers or other in buffers):
            return one, other
    return None


@contextmanager
def _quiet_export() -> Iterator[None]:
    """Keep what torch.export warns about its own internals from the user, who cannot act on it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning)
        yield


def _require_static(exported: ExportedProgram) -> None:
    import torch

    symbolic = (torch.SymInt, torch.SymFloat, torch.SymBool)
    for node in exported.graph.nodes:
        values = node.meta.get("val")
        for value in values if isinstance(values, (tuple, list)) else (values,):
            sizes = value.shape if isinstance(value, torch.Tensor) else (value,)
            if any(isinstance(size, symbolic) for size in sizes):
                place = place_of(node) or "place unknown"
                raise CaptureError(
                    f"`{operator_of(node)}` gives a shape or a number that depends on tensor values ({place})",
                    hint=_STATIC_HINT,
                )
