"""Numbers that need not be baked into a NEFF: a changing learning rate must not recompile.

Numbers the user writes beside a tensor (`x * 0.5`) reach the device as CPU tensors without dimensions and are always
run-time inputs. Here are the operators that take numbers as such.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# By operator without its overload and a trailing underscore: the arguments that may be tensors without dimensions.
_RUNTIME = {
    "add": ("alpha",),
    "sub": ("alpha",),
    "addcmul": ("value",),
    "addcdiv": ("value",),
    "lerp": ("weight",),
    "masked_fill": ("value",),
    "clamp": ("min", "max"),
    "clamp_min": ("min",),
    "clamp_max": ("max",),
    "eq": ("other",),
    "ne": ("other",),
    "lt": ("other",),
    "le": ("other",),
    "gt": ("other",),
    "ge": ("other",),
}


def runtime_numbers(name: str, overload: str) -> list[str]:
    """The names of the arguments whose values a plan takes with each call. Zero and one are baked all the same."""
    del overload
    return list(_RUNTIME.get(_base(name), ()))


def rewrite(name: str) -> Callable[..., torch.Tensor] | None:
    """The operator in terms of ones that take tensors for its numbers; None where there is nothing to rewrite."""
    return _REWRITES.get(_base(name))


def _base(name: str) -> str:
    plain = name.removeprefix("aten::")
    return plain.removesuffix("_") if plain.removesuffix("_") in _RUNTIME else plain


def _add(self: torch.Tensor, other: Any, *, alpha: Any = 1, **_: Any) -> torch.Tensor:
    return self + _scaled(other, alpha, self)


def _sub(self: torch.Tensor, other: Any, *, alpha: Any = 1, **_: Any) -> torch.Tensor:
    return self - _scaled(other, alpha, self)


def _scaled(other: Any, alpha: Any, like: torch.Tensor) -> Any:
    if not isinstance(alpha, torch.Tensor):
        return other if alpha == 1 else other * alpha
    dtype = torch.result_type(like, other)
    return other * alpha.to(dtype)


def _addcmul(self: torch.Tensor, one: torch.Tensor, two: torch.Tensor, *, value: Any = 1, **_: Any) -> torch.Tensor:
    return self + _number(value, self) * (one * two)


def _addcdiv(self: torch.Tensor, one: torch.Tensor, two: torch.Tensor, *, value: Any = 1, **_: Any) -> torch.Tensor:
    return self + _number(value, self) * (one / two)


def _lerp(self: torch.Tensor, end: torch.Tensor, weight: Any, **_: Any) -> torch.Tensor:
    return self + _number(weight, self) * (end - self)


def _masked_fill(self: torch.Tensor, mask: torch.Tensor, value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        value = torch.full((), value, dtype=self.dtype)
    return torch.where(mask, value.to(self.dtype), self)


def _clamp(self: torch.Tensor, min: Any = None, max: Any = None, **_: Any) -> torch.Tensor:  # noqa: A002
    dtype = self.dtype
    for bound in (min, max):
        if bound is not None:
            dtype = torch.promote_types(dtype, torch.result_type(self, bound))
    value = self.to(dtype)
    if min is not None:
        value = torch.maximum(value, _tensor(min, dtype))
    if max is not None:
        value = torch.minimum(value, _tensor(max, dtype))
    return value


def _clamp_min(self: torch.Tensor, min: Any, **_: Any) -> torch.Tensor:  # noqa: A002
    return _clamp(self, min)


def _clamp_max(self: torch.Tensor, max: Any, **_: Any) -> torch.Tensor:  # noqa: A002
    return _clamp(self, None, max)


def _compare(target: Any) -> Callable[..., torch.Tensor]:
    def compare(self: torch.Tensor, other: Any, **_: Any) -> torch.Tensor:
        result: torch.Tensor = target(self, other)
        return result

    return compare


def _number(value: Any, like: torch.Tensor) -> Any:
    return value.to(like.dtype) if isinstance(value, torch.Tensor) else value


def _tensor(value: Any, dtype: torch.dtype) -> torch.Tensor:
    return value.to(dtype) if isinstance(value, torch.Tensor) else torch.full((), value, dtype=dtype)


_REWRITES: dict[str, Callable[..., torch.Tensor]] = {
    "add": _add,
    "sub": _sub,
    "addcmul": _addcmul,
    "addcdiv": _addcdiv,
    "lerp": _lerp,
    "masked_fill": _masked_fill,
    "clamp": _clamp,
    "clamp_min": _clamp_min,
    "clamp_max": _clamp_max,
    **{name: _compare(getattr(torch, name)) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
}
