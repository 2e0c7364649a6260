"""Error functions, gamma functions and their inverses, to float32 precision."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from torch_neuronx.eager.decompositions.floats import floating, horner, nan_like

_SQRT_2 = math.sqrt(2.0)
_INFINITY = float("inf")

# Lanczos' approximation of gamma with g = 7 and nine terms.
_LANCZOS = (
    676.520368121885098567009190444019,
    -1259.13921672240287047156078755283,
    771.3234287776530788486528258894,
    -176.61502916214059906584551354,
    12.507343278686904814458936853,
    -0.13857109526572011689554707,
    9.984369578019570859563e-6,
    1.50563273514931155834e-7,
)


def erfcx(x: torch.Tensor) -> torch.Tensor:
    """exp(x^2) erfc(x); for x >= 1 the rational-free expansions in 1/x^2 of Cephes' erfcf."""
    size = x.abs()
    far = size.clamp_min(1.0)
    inverse = 1 / far
    square = inverse * inverse
    near_two = horner(
        square,
        (
            2.326819970068386e-2,
            -1.387039388740657e-1,
            3.687424674597105e-1,
            -5.824733027278666e-1,
            6.210004621745983e-1,
            -4.944515323274145e-1,
            3.404879937665872e-1,
            -2.741127028184656e-1,
            5.638259427386472e-1,
        ),
    )
    beyond = horner(
        square,
        (
            -1.047766399936249e1,
            1.297719955372516e1,
            -7.495518717768503,
            2.921019019210786,
            -1.015265279202700,
            4.218463358204948e-1,
            -2.820767439740514e-1,
            5.641895067754075e-1,
        ),
    )
    small = size.clamp_max(1.0)
    right = torch.where(
        size < 1,
        torch.exp(small * small) * (1 - torch.erf(small)),
        inverse * torch.where(size < 2, near_two, beyond),
    )
    return torch.where(x < 0, 2 * torch.exp(size * size) - right, right)


def erfc(x: torch.Tensor) -> torch.Tensor:
    size = x.abs()
    tail = torch.where(size == _INFINITY, torch.zeros_like(x), torch.exp(-size * size) * erfcx(size))
    return torch.where(size < 1, 1 - torch.erf(x), torch.where(x < 0, 2 - tail, tail))


def erfinv(x: torch.Tensor) -> torch.Tensor:
    """M. Giles, "Approximating the erfinv function" (2012), single precision."""
    w = -torch.log((1 - x) * (1 + x))
    central = horner(
        w - 2.5,
        (
            2.81022636e-08,
            3.43273939e-07,
            -3.5233877e-06,
            -4.39150654e-06,
            0.00021858087,
            -0.00125372503,
            -0.00417768164,
            0.246640727,
            1.50140941,
        ),
    )
    tail = horner(
        torch.sqrt(w.clamp_min(5.0)) - 3,
        (
            -0.000200214257,
            0.000100950558,
            0.00134934322,
            -0.00367342844,
            0.00573950773,
            -0.0076224613,
            0.00943887047,
            1.00167406,
            2.83297682,
        ),
    )
    value = torch.where(w < 5, central, tail) * x
    edge = torch.where(x > 0, torch.full_like(x, _INFINITY), torch.full_like(x, -_INFINITY))
    return torch.where(x.abs() == 1, edge, torch.where(x.abs() <= 1, value, nan_like(x)))


def ndtri(p: torch.Tensor) -> torch.Tensor:
    """The normal distribution's quantile; its tails by P. Acklam's rational approximation, relative error 1.2e-9."""
    lower = torch.minimum(p, 1 - p)
    q = torch.sqrt(-2 * torch.log(lower))
    c = (
        -7.784894002430293e-03,
        -3.223964580411365e-01,
        -2.400758277161838,
        -2.549732539343734,
        4.374664141464968,
        2.938163982698783,
    )
    d = (7.784695709041462e-03, 3.224671290700398e-01, 2.445134137142996, 3.754408661907416, 1.0)
    tail = horner(q, c) / horner(q, d)
    tail = torch.where(p > 0.5, -tail, tail)
    central = _SQRT_2 * erfinv((2 * p - 1).clamp(-0.99, 0.99))
    value = torch.where(lower < 0.02425, tail, central)
    edge = torch.where(p == 0, torch.full_like(p, -_INFINITY), torch.full_like(p, _INFINITY))
    return torch.where((p == 0) | (p == 1), edge, torch.where((p > 0) & (p < 1), value, nan_like(p)))


def log_ndtr(x: torch.Tensor) -> torch.Tensor:
    t = x / _SQRT_2
    tail = torch.log(erfcx(-t.clamp_max(0)) / 2) - t * t
    return torch.where(x < -1, tail, torch.log1p(-erfc(t) / 2))


def hypot(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """By the larger of both, so that squares neither overflow nor vanish."""
    large, small = torch.maximum(x.abs(), y.abs()), torch.minimum(x.abs(), y.abs())
    ratio = torch.where(large == 0, torch.zeros_like(small), small / large)
    value = large * torch.sqrt(1 + ratio * ratio)
    return torch.where((x.abs() == _INFINITY) | (y.abs() == _INFINITY), torch.full_like(value, _INFINITY), value)


def nextafter(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The neighbour's bits are one more or one less as an integer."""
    bits = x.view(torch.int32)
    away = (y > x) == (x > 0)
    moved = torch.where(away, bits + 1, bits - 1).view(torch.float32)
    tiny = torch.where(y > 0, torch.ones_like(bits), torch.full_like(bits, -(2**31) + 1)).view(torch.float32)
    value = torch.where(x == y, y, torch.where(x == 0, tiny, moved))
    return torch.where(torch.isnan(x) | torch.isnan(y), nan_like(value), value)


def _nextafter(x: torch.Tensor, y: torch.Tensor) -> Any:
    return nextafter(*torch.broadcast_tensors(x, y)) if x.dtype == y.dtype == torch.float32 else NotImplemented


def copysign(self: torch.Tensor, other: Any) -> torch.Tensor:
    dtype = torch.result_type(self, other)
    dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    size = self.to(dtype).abs()
    if isinstance(other, torch.Tensor):
        return torch.where(torch.signbit(other), -size, size)
    return -size if math.copysign(1.0, other) < 0 else size


def frexp(self: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mantissa in [0.5, 1) and exponent, from the bits."""
    value = self.to(torch.float32)
    scaled = torch.where(value.abs() < 2.0**-126, value * 2.0**24, value)
    bits = scaled.view(torch.int32)
    biased = torch.bitwise_right_shift(bits, torch.full_like(bits, 23)) & 0xFF
    exponent = torch.where(value.abs() < 2.0**-126, biased - 150, biased - 126)
    kept = torch.bitwise_and(bits, torch.full_like(bits, -0x7F800001))
    mantissa = (kept + 0x3F000000).view(torch.float32)
    plain = (value != 0) & torch.isfinite(value)
    exponent = torch.where(plain, exponent, torch.zeros_like(exponent))
    return torch.where(plain, mantissa, value).to(self.dtype), exponent


def _lanczos(z: torch.Tensor) -> torch.Tensor:
    value = torch.full_like(z, 0.99999999999980993227684700473478)
    for number, coefficient in enumerate(_LANCZOS):
        value = value + coefficient / (z + (number + 1))
    return value


def lgamma(x: torch.Tensor) -> torch.Tensor:
    """log |gamma(x)| by Lanczos' approximation, and by reflection left of 1/2."""
    z = torch.where(x < 0.5, -x, x - 1)
    log_t = math.log(7.5) + torch.log1p(z / 7.5)
    value = 0.5 * math.log(2 * math.pi) + (z + 0.5 - (z + 7.5) / log_t) * log_t + torch.log(_lanczos(z))
    fraction = x.abs() - torch.floor(x.abs())
    reduced = torch.minimum(fraction, 1 - fraction)
    reflected = math.log(math.pi) - torch.log(torch.sin(math.pi * reduced)) - value
    value = torch.where(x < 0.5, reflected, value)
    pole = ((x <= 0) & (x == torch.floor(x))) | (x.abs() == _INFINITY)
    return torch.where(pole, torch.full_like(x, _INFINITY), torch.where(torch.isnan(x), x, value))


def digamma(x: torch.Tensor) -> torch.Tensor:
    """The derivative of the logarithm of Lanczos' approximation; reflection left of 1/2."""
    z = torch.where(x < 0.5, -x, x - 1)
    slope = torch.zeros_like(z)
    for number, coefficient in enumerate(_LANCZOS):
        slope = slope - coefficient / ((z + (number + 1)) * (z + (number + 1)))
    log_t = math.log(7.5) + torch.log1p(z / 7.5)
    value = log_t + slope / _lanczos(z) - 7 / (z + 7.5)
    # The tangent has the period 1 in units of pi; near its poles only the distance to the integer counts.
    offset = x + torch.floor(x + 0.5).neg()
    value = torch.where(x < 0.5, value - math.pi / torch.tan(math.pi * offset), value)
    zero = torch.where(torch.signbit(x), torch.full_like(x, _INFINITY), torch.full_like(x, -_INFINITY))
    value = torch.where((x < 0) & (x == torch.floor(x)), nan_like(x), value)
    return torch.where(x == 0, zero, value)


def zeta(x: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Hurwitz' zeta function: Euler-Maclaurin summation after the first terms (DLMF 25.11.5)."""
    terms = 24
    steps = torch.arange(terms, dtype=q.dtype, device=q.device)
    x, q = torch.broadcast_tensors(x, q)
    base = q.unsqueeze(-1) + steps
    total = _power(base, -x.unsqueeze(-1)).sum(-1)
    a = q + terms
    s = _power(a, -x)
    total = total + s * a / (x - 1) + 0.5 * s
    factor, power = x, s / a
    # Bernoulli numbers over factorials: B_2k / (2k)!
    for k, bernoulli in enumerate((1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160)):
        total = total + bernoulli * factor * power
        factor = factor * (x + 2 * k + 1) * (x + 2 * k + 2)
        power = power / (a * a)
    integer = q == torch.floor(q)
    infinite = torch.full_like(total, _INFINITY)
    total = torch.where((q <= 0) & ~integer & (x != torch.floor(x)), nan_like(total), total)
    total = torch.where((q <= 0) & integer, infinite, total)
    total = torch.where(x < 1, nan_like(total), total)
    return torch.where(x == 1, infinite, total)


def _power(base: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    """Of negative bases with whole exponents too."""
    size = torch.exp(exponent * torch.log(base.abs()))
    odd = torch.floor(exponent / 2) * 2 != exponent
    return torch.where((base < 0) & odd, -size, size)


def polygamma(n: int, x: torch.Tensor) -> torch.Tensor:
    if n == 0:
        return digamma(x)
    order = torch.full_like(x, n + 1)
    sign = 1.0 if n % 2 else -1.0
    if n > 1:
        return sign * math.gamma(n + 1) * zeta(order, x)
    # Trigamma left of 1/2: pi^2 / sin(pi x)^2 - trigamma(1 - x).
    left = x < 0.5
    value = zeta(order, torch.where(left, 1 - x, x))
    sine = torch.sin(math.pi * (x - torch.floor(x + 0.5)))
    return torch.where(left, (math.pi / sine) ** 2 - value, value)


def _polygamma(n: int, x: torch.Tensor) -> torch.Tensor:
    return floating(functools.partial(polygamma, n))(x)


def table() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    return {
        aten.digamma.default: floating(digamma),
        aten.copysign.Scalar: copysign,
        aten.copysign.Tensor: copysign,
        aten.frexp.Tensor: frexp,
        aten.hypot.default: floating(hypot),
        aten.nextafter.default: _nextafter,
        aten.erfc.default: floating(erfc),
        aten.erfinv.default: floating(erfinv),
        aten.lgamma.default: floating(lgamma),
        aten.polygamma.default: _polygamma,
        aten.special_erfcx.default: floating(erfcx),
        aten.special_log_ndtr.default: floating(log_ndtr),
        aten.special_ndtri.default: floating(ndtri),
        aten.special_zeta.default: floating(zeta),
        aten.special_zeta.self_scalar: floating(zeta),
        aten.special_zeta.other_scalar: floating(zeta),
    }
