"""Bessel functions by quadrature of their integrals, and by their expansions far from the origin.

The integrands are smooth or periodic, so that some forty nodes give all the digits of a float32; section numbers are of
the Digital Library of Mathematical Functions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from torch_neuronx.eager.decompositions.floats import floating, nan_like

_FAR = 25.0


def _nodes(values: Any, like: torch.Tensor) -> torch.Tensor:
    return torch.stack([torch.full((), float(value), dtype=torch.float32, device=like.device) for value in values])


@functools.cache
def _legendre(count: int) -> tuple[Any, Any]:
    """Gauss' nodes and weights on [0, 1]."""
    from numpy.polynomial.legendre import leggauss

    nodes, weights = leggauss(count)
    return (nodes + 1) / 2, weights / 2


def _scaled_i(order: int, x: torch.Tensor) -> torch.Tensor:
    """exp(-|x|) I_n(x): 10.32.3, and 10.40.1 beyond."""
    size = x.abs()
    near = size.clamp_max(_FAR).unsqueeze(-1)
    angles = _nodes([math.pi * k / 40 for k in range(41)], x)
    weights = _nodes([0.5 / 40, *[1 / 40] * 39, 0.5 / 40], x)
    if order:
        weights = weights * torch.cos(angles)
    inside = (torch.exp(near * (torch.cos(angles) - 1)) * weights).sum(-1)
    beyond = _series(4 * order**2, -1 / (8 * size.clamp_min(_FAR))) / torch.sqrt(2 * math.pi * size.clamp_min(_FAR))
    value = torch.where(size <= _FAR, inside, beyond)
    return torch.where(x < 0, -value, value) if order else value


def _series(mu: int, z: torch.Tensor, terms: int = 7) -> torch.Tensor:
    """The sum of a_k (8z)^k of Hankel's expansions, 10.17.1."""
    total = term = torch.ones_like(z)
    for k in range(1, terms):
        term = term * ((mu - (2 * k - 1) ** 2) / k) * z
        total = total + term
    return total


def _hankel(order: int, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """J_n and Y_n far from the origin: 10.17.3 and 10.17.4."""
    mu, z = 4 * order**2, 1 / (8 * x)
    even, odd, term = torch.ones_like(x), torch.zeros_like(x), torch.ones_like(x)
    for k in range(1, 8):
        term = term * ((mu - (2 * k - 1) ** 2) / k) * z
        sign = -1.0 if k % 4 in (2, 3) else 1.0
        if k % 2:
            odd = odd + sign * term
        else:
            even = even + sign * term
    phase = (order / 2 + 0.25) * math.pi
    cosine = torch.cos(x) * math.cos(phase) + torch.sin(x) * math.sin(phase)
    sine = torch.sin(x) * math.cos(phase) - torch.cos(x) * math.sin(phase)
    scale = torch.sqrt(2 / (math.pi * x))
    return scale * (even * cosine - odd * sine), scale * (even * sine + odd * cosine)


def bessel_j(order: int, x: torch.Tensor) -> torch.Tensor:
    """10.9.2: the mean of cos(n t - x sin t) over half a turn."""
    size = x.abs()
    near = size.clamp_max(_FAR).unsqueeze(-1)
    angles = _nodes([math.pi * (k + 0.5) / 48 for k in range(48)], x)
    inside = torch.cos(order * angles - near * torch.sin(angles)).mean(-1)
    value = torch.where(size <= _FAR, inside, _hankel(order, size.clamp_min(_FAR))[0])
    value = torch.where(size == float("inf"), torch.zeros_like(value), value)
    return torch.where(x < 0, -value, value) if order % 2 else value


def bessel_y(order: int, x: torch.Tensor) -> torch.Tensor:
    """10.9.7, with the infinite range cut where the integrand is below 1e-9."""
    near = x.clamp(1e-30, _FAR).unsqueeze(-1)
    positions, weights = (_nodes(values, x) for values in _legendre(48))
    angles = math.pi * positions
    oscillating = (torch.sin(near * torch.sin(angles) - order * angles) * weights).sum(-1)
    stretch = torch.asinh(24 / near)
    t = stretch * positions
    kernel = torch.exp(-near * torch.sinh(t))
    kernel = kernel * (2 * torch.sinh(t) if order else torch.full_like(t, 2.0))
    decaying = (kernel * stretch * weights).sum(-1) / math.pi
    value = torch.where(x <= _FAR, oscillating - decaying, _hankel(order, x.clamp_min(_FAR))[1])
    value = torch.where(x == float("inf"), torch.zeros_like(value), value)
    value = torch.where(x == 0, torch.full_like(x, -float("inf")), value)
    return torch.where(x < 0, nan_like(x), value)


def scaled_k(order: int, x: torch.Tensor) -> torch.Tensor:
    """exp(x) K_n(x): 10.32.9, by the trapezoidal rule in t."""
    size = x.clamp_min(1e-30)
    stretch = torch.acosh(1 + 24 / size).unsqueeze(-1)
    positions = _nodes([(k + 0.5) / 64 for k in range(64)], x)
    t = stretch * positions
    half = torch.sinh(t / 2)
    kernel = torch.exp(-2 * size.unsqueeze(-1) * half * half)
    if order:
        kernel = kernel * torch.cosh(t)
    value = (kernel * stretch).mean(-1)
    value = torch.where(x == 0, torch.full_like(x, float("inf")), value)
    return torch.where(x < 0, nan_like(x), value)


def spherical_j0(x: torch.Tensor) -> torch.Tensor:
    safe = torch.where(x.abs() < 0.5, torch.ones_like(x), x)
    square = x * x
    series = 1 - square / 6 * (1 - square / 20 * (1 - square / 42 * (1 - square / 72)))
    value = torch.where(x.abs() < 0.5, series, torch.sin(safe) / safe)
    return torch.where(x.abs() == float("inf"), torch.zeros_like(x), value)


def _i(order: int, x: torch.Tensor) -> torch.Tensor:
    return torch.exp(x.abs()) * _scaled_i(order, x)


def _k(order: int, x: torch.Tensor) -> torch.Tensor:
    return torch.exp(-x.clamp_min(0)) * scaled_k(order, x)


def table() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten

    def of(function: Callable[..., torch.Tensor], order: int) -> Callable[..., torch.Tensor]:
        return floating(functools.partial(function, order))

    return {
        aten.i0.default: of(_i, 0),
        aten.special_i0e.default: of(_scaled_i, 0),
        aten.special_i1.default: of(_i, 1),
        aten.special_i1e.default: of(_scaled_i, 1),
        aten.special_modified_bessel_i0.default: of(_i, 0),
        aten.special_modified_bessel_i1.default: of(_i, 1),
        aten.special_modified_bessel_k0.default: of(_k, 0),
        aten.special_modified_bessel_k1.default: of(_k, 1),
        aten.special_scaled_modified_bessel_k0.default: of(scaled_k, 0),
        aten.special_scaled_modified_bessel_k1.default: of(scaled_k, 1),
        aten.special_bessel_j0.default: of(bessel_j, 0),
        aten.special_bessel_j1.default: of(bessel_j, 1),
        aten.special_bessel_y0.default: of(bessel_y, 0),
        aten.special_bessel_y1.default: of(bessel_y, 1),
        aten.special_spherical_bessel_j0.default: floating(spherical_j0),
    }
