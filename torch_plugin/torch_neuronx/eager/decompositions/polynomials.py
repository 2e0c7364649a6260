"""Chebyshev's polynomials in closed form: their degree may be a tensor, so that no recurrence has a known length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_neuronx.eager.decompositions.floats import floating


def _angles(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """theta with x = cos theta inside [-1, 1], and u with |x| = cosh u outside."""
    return torch.acos(x.clamp(-1, 1)), torch.acosh(x.abs().clamp_min(1))


def _odd(n: torch.Tensor) -> torch.Tensor:
    return torch.floor(n / 2) * 2 != n


def first(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    """T: cos(n theta), DLMF 18.5.1."""
    theta, u = _angles(x)
    outside = torch.cosh(n * u)
    outside = torch.where((x < 0) & _odd(n), -outside, outside)
    return torch.where(x.abs() <= 1, torch.cos(n * theta), outside)


def second(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    """U: sin((n + 1) theta) / sin theta, DLMF 18.5.2; its limit at both ends."""
    theta, u = _angles(x)
    flip = (x < 0) & _odd(n)
    end = torch.where(flip, -(n + 1), n + 1)
    outside = torch.sinh((n + 1) * u) / torch.sinh(u)
    outside = torch.where(flip, -outside, outside)
    value = torch.where(x.abs() < 1, torch.sin((n + 1) * theta) / torch.sin(theta), outside)
    return torch.where(x.abs() == 1, end, value)


def third(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    """V = U_n - U_(n-1), DLMF 18.9.7 in PyTorch's numbering."""
    return second(x, n) - torch.where(n == 0, torch.zeros_like(x * n), second(x, n - 1))


def fourth(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    """W = U_n + U_(n-1)."""
    return second(x, n) + torch.where(n == 0, torch.zeros_like(x * n), second(x, n - 1))


def _degrees(function: Callable[..., torch.Tensor], *, shifted: bool) -> Callable[..., torch.Tensor]:
    def polynomial(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        degree = torch.trunc(n)
        argument = 2 * x - 1 if shifted else x
        return torch.where(degree < 0, torch.zeros_like(x * degree), function(argument, degree.clamp_min(0)))

    return floating(polynomial)


def table() -> dict[Any, Callable[..., Any]]:
    found: dict[Any, Callable[..., Any]] = {}
    for letter, function in {"t": first, "u": second, "v": third, "w": fourth}.items():
        for prefix, shifted in (("special_", False), ("special_shifted_", True)):
            packet = getattr(torch.ops.aten, f"{prefix}chebyshev_polynomial_{letter}")
            for overload in ("default", "x_scalar", "n_scalar"):
                found[getattr(packet, overload)] = _degrees(function, shifted=shifted)
    return found
