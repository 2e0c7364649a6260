"""Operators on lists of tensors, as optimizers use them, taken apart: one graph has no use for fewer launches."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

_PREFIX = "_foreach_"
_KEYWORDS = {"alpha", "value", "dtype"}


@functools.cache
def foreach_decompositions() -> dict[Any, Callable[..., Any]]:
    """By operator, for AOTAutograd: every functional form that has a single-tensor counterpart."""
    found: dict[Any, Callable[..., Any]] = {}
    for name in torch._C._dispatch_get_all_op_names():
        full, _, overload = name.removeprefix("aten::").partition(".")
        if not name.startswith(f"aten::{_PREFIX}") or full.endswith("_"):
            continue
        op = getattr(getattr(torch.ops.aten, full), overload or "default")
        single = _SINGLE.get(full) or getattr(torch.ops.aten, full.removeprefix(_PREFIX), None)
        if single is not None and not op._schema.is_mutable:
            found[op] = functools.partial(_each, op, single)
    return found


def _each(op: torch._ops.OpOverload, single: Callable[..., torch.Tensor], *args: Any, **kwargs: Any) -> Any:
    given = dict(zip((entry.name for entry in op._schema.arguments), args, strict=False)) | kwargs
    lists = {name: value for name, value in given.items() if isinstance(value, (list, tuple))}
    results = []
    for number in range(len(next(iter(lists.values())))):
        one = {name: value[number] if name in lists else value for name, value in given.items()}
        named = {name: value for name, value in one.items() if name in _KEYWORDS}
        positional = [value for name, value in one.items() if name not in _KEYWORDS]
        results.append(single(*positional, **named))
    return results


def _pointwise(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def single(self: torch.Tensor, one: torch.Tensor, two: torch.Tensor, factor: Any = 1, **named: Any) -> torch.Tensor:
        return function(self, one, two, value=named.get("value", factor))

    return single


def _bounded(name: str) -> Callable[..., torch.Tensor]:
    def single(self: torch.Tensor, other: Any) -> torch.Tensor:
        tensors = getattr(torch, {"min": "minimum", "max": "maximum"}[name])
        # The larger of a tensor and a number is the tensor clamped from below.
        numbers = getattr(torch, {"min": "clamp_max", "max": "clamp_min"}[name])
        made: torch.Tensor = (tensors if isinstance(other, torch.Tensor) else numbers)(self, other)
        return made

    return single


def _norm(self: torch.Tensor, ord: float = 2, dtype: Any = None) -> torch.Tensor:  # noqa: A002
    return torch.linalg.vector_norm(self, ord, dtype=dtype)


def _copy(self: torch.Tensor, source: torch.Tensor, *_: Any) -> torch.Tensor:
    return torch.ops.aten.copy.default(self, source)  # type: ignore[no-any-return]


_SINGLE: dict[str, Callable[..., torch.Tensor]] = {
    "_foreach_addcmul": _pointwise(torch.addcmul),
    "_foreach_addcdiv": _pointwise(torch.addcdiv),
    "_foreach_clamp_min": _bounded("max"),
    "_foreach_clamp_max": _bounded("min"),
    "_foreach_maximum": _bounded("max"),
    "_foreach_minimum": _bounded("min"),
    "_foreach_norm": _norm,
    "_foreach_copy": _copy,
    "_foreach_zero": torch.zeros_like,
}
