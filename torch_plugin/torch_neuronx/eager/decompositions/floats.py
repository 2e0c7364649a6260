"""Functions written for float32, made to take and give what PyTorch's operators do."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch


def floating(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Computes in float32 whatever comes; gives the promoted floating dtype, as PyTorch's unary and binary functions
    do. Numbers among the first two arguments become tensors."""

    @functools.wraps(function)
    def computed(*args: Any) -> torch.Tensor:
        tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
        dtype = functools.reduce(_promoted, args[1:], _dtype(args[0]))
        if not dtype.is_floating_point:
            dtype = torch.get_default_dtype()
        device = tensors[0].device
        given = [
            arg.to(torch.float32)
            if isinstance(arg, torch.Tensor)
            else torch.full((), float(arg), dtype=torch.float32, device=device)
            for arg in args
        ]
        return function(*given).to(dtype)

    return computed


def _dtype(value: Any) -> torch.dtype:
    if isinstance(value, torch.Tensor):
        return value.dtype
    return torch.float32 if isinstance(value, float) else torch.int64


def _promoted(dtype: torch.dtype, value: Any) -> torch.dtype:
    if isinstance(value, torch.Tensor):
        return torch.promote_types(dtype, value.dtype)
    return dtype if dtype.is_floating_point or not isinstance(value, float) else torch.get_default_dtype()


def horner(x: torch.Tensor, coefficients: Sequence[float]) -> torch.Tensor:
    """The polynomial with these coefficients, highest power first."""
    value = torch.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + coefficient
    return value


def nan_like(x: torch.Tensor) -> torch.Tensor:
    return torch.full_like(x, float("nan"))
