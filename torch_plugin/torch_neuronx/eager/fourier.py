"""Discrete Fourier transforms as products with matrices of roots of unity, split by the factors of the length."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_neuronx.eager.policy import UnsupportedError

_DIRECT = 64  # lengths up to it are one product
_LARGEST_PRIME = 1024
_SCALES: tuple[Callable[[int], float], ...] = (lambda n: 1.0, lambda n: 1 / math.sqrt(n), lambda n: 1 / n)

Parts = tuple[torch.Tensor, torch.Tensor]


def _roots(rows: int, columns: int, length: int, sign: float, like: torch.Tensor) -> Parts:
    """exp(sign 2 pi i j k / length). The product is reduced as an integer, or float32 would lose the angle."""
    j = torch.arange(rows, dtype=torch.int64, device=like.device).unsqueeze(1)
    k = torch.arange(columns, dtype=torch.int64, device=like.device).unsqueeze(0)
    turns = j * k
    turns = turns - torch.div(turns, length, rounding_mode="floor") * length
    angle = turns.to(torch.float32) * (2 * math.pi / length)
    return torch.cos(angle), sign * torch.sin(angle)


def _product(one: Parts, two: Parts, multiply: Callable[..., torch.Tensor]) -> Parts:
    return (
        multiply(one[0], two[0]) - multiply(one[1], two[1]),
        multiply(one[0], two[1]) + multiply(one[1], two[0]),
    )


def _factor(length: int) -> int:
    """The divisor nearest below the root; 1 for a prime."""
    return next(number for number in range(math.isqrt(length), 0, -1) if length % number == 0)


def _transform(value: Parts, sign: float) -> Parts:
    """Along the last dimension."""
    length = value[0].shape[-1]
    rows = _factor(length)
    if length <= _DIRECT or rows == 1:
        if length > _LARGEST_PRIME:
            raise UnsupportedError(f"the length {length} of the transform is a prime above {_LARGEST_PRIME}")
        return _product(value, _roots(length, length, length, sign, value[0]), torch.matmul)
    # Cooley and Tukey: transforms of columns, turned by twiddle factors, then of rows.
    columns = length // rows
    shape = [*value[0].shape[:-1], rows, columns]
    block = (value[0].reshape(shape).transpose(-1, -2), value[1].reshape(shape).transpose(-1, -2))
    block = _transform(block, sign)
    block = (block[0].transpose(-1, -2), block[1].transpose(-1, -2))
    block = _product(block, _roots(rows, columns, length, sign, value[0]), torch.mul)
    block = _transform(block, sign)
    flat = value[0].shape
    return block[0].transpose(-1, -2).reshape(flat), block[1].transpose(-1, -2).reshape(flat)


def _along(value: Parts, dims: Sequence[int], sign: float) -> Parts:
    for dim in dims:
        moved = (value[0].movedim(dim, -1), value[1].movedim(dim, -1))
        made = _transform(moved, sign)
        value = (made[0].movedim(-1, dim), made[1].movedim(-1, dim))
    return value


def _scale(sizes: Sequence[int], normalization: int) -> float:
    return _SCALES[normalization](math.prod(sizes))


def _parts(value: torch.Tensor) -> Parts:
    from torch_neuronx.eager.complexes import parts

    real, imaginary = parts(value)
    return real.to(torch.float32), imaginary.to(torch.float32)


def _pair(value: Parts, scale: float) -> torch.Tensor:
    from torch_neuronx.eager.complexes import pair

    return pair(value[0] * scale, value[1] * scale)


def c2c(self: torch.Tensor, dim: Sequence[int], normalization: int, forward: bool) -> torch.Tensor:
    scale = _scale([self.shape[number] for number in dim], normalization)
    return _pair(_along(_parts(self), dim, -1.0 if forward else 1.0), scale)


def r2c(self: torch.Tensor, dim: Sequence[int], normalization: int, onesided: bool) -> torch.Tensor:
    scale = _scale([self.shape[number] for number in dim], normalization)
    value = _along(_parts(self), dim[-1:], -1.0)
    if onesided:
        kept = self.shape[dim[-1]] // 2 + 1
        value = (value[0].narrow(dim[-1], 0, kept), value[1].narrow(dim[-1], 0, kept))
    return _pair(_along(value, dim[:-1], -1.0), scale)


def c2r(self: torch.Tensor, dim: Sequence[int], normalization: int, last_dim_size: int) -> torch.Tensor:
    last = dim[-1]
    real, imaginary = _along(_parts(self), dim[:-1], 1.0)
    kept = last_dim_size // 2 + 1
    real, imaginary = real.narrow(last, 0, kept), imaginary.narrow(last, 0, kept)
    # The other half is the conjugate of this one, backwards.
    rest = last_dim_size - kept
    if rest:
        real = torch.cat([real, real.narrow(last, 1, rest).flip(last)], last)
        imaginary = torch.cat([imaginary, -imaginary.narrow(last, 1, rest).flip(last)], last)
    value, _ = _along((real, imaginary), [last], 1.0)
    sizes = [last_dim_size, *(self.shape[number] for number in dim[:-1])]
    return value * _scale(sizes, normalization)


RULES: dict[str, Callable[..., Any]] = {"_fft_c2c": c2c, "_fft_r2c": r2c, "_fft_c2r": c2r}
