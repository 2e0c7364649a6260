"""The incomplete gamma functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_neuronx.eager.decompositions.floats import floating, nan_like
from torch_neuronx.eager.decompositions.special import lgamma

_TERMS = 200


def _halves(a: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The lower and the upper one, each from the form that converges there (DLMF 8.7.1 and 8.9.2)."""
    a, x = torch.broadcast_tensors(a, x)
    front = torch.exp(a * torch.log(x) - x - lgamma(a))
    series = x <= a + 1
    # Lower: x^a e^-x / gamma(a) * sum of x^n / (a (a+1) ... (a+n)), all terms at once.
    steps = torch.arange(1, _TERMS + 1, dtype=a.dtype, device=a.device)
    inner = torch.where(series, x, torch.zeros_like(x)).unsqueeze(-1) / (a.unsqueeze(-1) + steps)
    lower = front / a * (1 + torch.cumprod(inner, -1).sum(-1))
    # Upper: Lentz' evaluation of the continued fraction.
    far = torch.where(series, a + 2, x)
    b = far + 1 - a
    c = torch.full_like(b, 1e30)
    d = 1 / b
    h = d
    for n in range(1, 48):
        an = -n * (n - a)
        b = b + 2
        d = 1 / (an * d + b)
        c = b + an / c
        h = h * d * c
    upper = front * h
    return torch.where(series, lower, 1 - upper), torch.where(series, 1 - lower, upper)


def _limits(a: torch.Tensor, x: torch.Tensor, value: torch.Tensor, at_zero: float) -> torch.Tensor:
    """What the forms above do not give: x = 0, x infinite, a = 0, arguments outside the domain."""
    a, x = torch.broadcast_tensors(a, x)
    zero, end = torch.full_like(value, at_zero), torch.full_like(value, 1 - at_zero)
    infinite = float("inf")
    value = torch.where(x == 0, zero, value)
    value = torch.where((a == 0) | (x == infinite), end, value)
    value = torch.where(a == infinite, torch.where(x == infinite, nan_like(value), zero), value)
    outside = (x < 0) | (a < 0) | ((a == 0) & (x == 0)) | torch.isnan(a) | torch.isnan(x)
    return torch.where(outside, nan_like(value), value)


def igamma(a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return _limits(a, x, _halves(a, x)[0], 0.0)


def igammac(a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return _limits(a, x, _halves(a, x)[1], 1.0)


def table() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    return {aten.igamma.default: floating(igamma), aten.igammac.default: floating(igammac)}
