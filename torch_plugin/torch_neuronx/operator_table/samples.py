"""The operator database of torch.testing: its operators by name, and samples of their arguments."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_neuronx.operator_table.case import Case

_MANY = 200  # an operator may have thousands of samples; the chosen ones are spread over that many


@functools.cache
def database() -> dict[str, Any]:
    """OpInfo by name and variant, in order of names. Needs `expecttest`, which PyTorch's own tests use."""
    from torch.testing._internal.common_methods_invocations import op_db

    found = {".".join(filter(None, (info.name, info.variant_test_name))): info for info in op_db}
    return dict(sorted(found.items()))


def cases(names: Sequence[str], dtypes: Sequence[str], *, backward: bool) -> list[Case]:
    """Those that the CPU supports; backward for floating dtypes."""
    found = []
    for name in names:
        info = database()[name]
        for dtype in dtypes:
            kind = getattr(torch, dtype)
            if not info.supports_dtype(kind, "cpu"):
                continue
            found.append(Case(name, dtype, False))
            if backward and kind.is_floating_point and info.supports_autograd and kind in info.backward_dtypes:
                found.append(Case(name, dtype, True))
    return found


def samples(case: Case, count: int) -> list[Any]:
    """`count` of the operator's samples, evenly spread, on the CPU; equal in every process."""
    torch.manual_seed(20260101)
    made = database()[case.name].sample_inputs("cpu", getattr(torch, case.dtype), requires_grad=case.backward)
    every = list(itertools.islice(made, _MANY))
    if len(every) <= count:
        return every
    return [every[number * (len(every) - 1) // max(count - 1, 1)] for number in range(count)]


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Nested arguments with each leaf changed."""
    if isinstance(value, torch.Size):
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(part, change) for part in value))
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(part, change) for part in value)
    if isinstance(value, dict):
        return {key: mapped(part, change) for key, part in value.items()}
    if isinstance(value, slice):
        return slice(*(mapped(part, change) for part in (value.start, value.stop, value.step)))
    return change(value)


def leaves(value: Any) -> list[Any]:
    """The leaves of nested results, in order."""
    found: list[Any] = []
    mapped(value, found.append)
    return found


def moved(value: Any, device: str) -> Any:
    """Nested arguments for another device, tensors as leaves of a graph of their own."""

    def move(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            made = leaf.detach().clone() if device == "cpu" else leaf.detach().to(device)
            return made.requires_grad_(leaf.requires_grad)
        if leaf == "cpu" or (isinstance(leaf, torch.device) and leaf.type == "cpu"):
            return type(leaf)(device)
        return leaf

    return mapped(value, move)


def sparse(value: Any) -> bool:
    """Whether any tensor has another layout than the device can hold."""
    return any(isinstance(leaf, torch.Tensor) and leaf.layout is not torch.strided for leaf in leaves(value))
