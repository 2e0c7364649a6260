"""Reductions and running reductions that torch-mlir has no form for, or a wrong one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Pair = tuple[torch.Tensor, ...]


def scan(combine: Callable[[Pair, Pair], Pair], values: Pair, dim: int) -> Pair:
    """Running results of an associative function: Hillis and Steele's doubling, log2(n) steps for n elements."""
    size = values[0].shape[dim]
    step = 1
    while step < size:
        early = tuple(value.narrow(dim, 0, size - step) for value in values)
        late = tuple(value.narrow(dim, step, size - step) for value in values)
        joined = combine(early, late)
        values = tuple(
            torch.cat([value.narrow(dim, 0, step), later], dim) for value, later in zip(values, joined, strict=True)
        )
        step *= 2
    return values


def cumprod(self: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    if dtype is None:
        dtype = self.dtype if self.dtype.is_floating_point or self.dtype.is_complex else torch.int64
    return scan(lambda one, two: (one[0] * two[0],), (self.to(dtype),), dim)[0]


def cumsum(self: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
    """torch-mlir's window reduction ends the process for complex numbers and is missing for truth values."""
    if self.dtype.is_complex or self.dtype is torch.bool:
        dtype = dtype or (self.dtype if self.dtype.is_complex else torch.int64)
        return scan(lambda one, two: (one[0] + two[0],), (self.to(dtype),), dim)[0]
    kind = dtype or self.dtype
    if kind in (torch.bfloat16, torch.float16):
        return torch.cumsum(self.to(torch.float32), dim).to(kind)
    return NotImplemented


def logcumsumexp(self: torch.Tensor, dim: int) -> torch.Tensor:
    if not self.numel():
        return self.clone()

    def join(one: Pair, two: Pair) -> Pair:
        top = torch.maximum(one[0], two[0])
        bottom = torch.minimum(one[0], two[0])
        apart = torch.where(top == bottom, torch.zeros_like(top), bottom - top)
        return (top + torch.log1p(torch.exp(apart)),)

    return scan(join, (self.to(torch.float32),), dim)[0].to(self.dtype)


def _running_extremum(largest: bool) -> Callable[..., Any]:
    def extremum(self: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
        places = torch.arange(self.shape[dim], dtype=torch.int64, device=self.device)
        shape = [1] * self.dim()
        shape[dim] = -1
        places = places.reshape(shape).expand(self.shape)

        def join(one: Pair, two: Pair) -> Pair:
            # Of equals the later one counts, and NaN beats everything.
            better = two[0] >= one[0] if largest else two[0] <= one[0]
            if self.dtype.is_floating_point:
                better = torch.isnan(two[0]) | (better & ~torch.isnan(one[0]))
            return torch.where(better, two[0], one[0]), torch.where(better, two[1], one[1])

        values, indices = scan(join, (self, places), dim)
        return values.clone(), indices.clone()

    return extremum


def variance(
    self: torch.Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> torch.Tensor:
    return variance_and_mean(self, dim, correction=correction, keepdim=keepdim)[0]


def variance_and_mean(
    self: torch.Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """NaN where nothing is left to divide by; torch-mlir gives zero."""
    dims = [number % self.dim() for number in dim] if dim else list(range(self.dim()))
    given = self.to(torch.float32) if self.dtype in (torch.bfloat16, torch.float16) else self
    mean = given.mean(dims, keepdim=True)
    apart = given - mean
    squares = (apart * apart).sum(dims, keepdim=keepdim)
    count = 1
    for number in dims:
        count *= self.shape[number]
    left = max(count - (1 if correction is None else correction), 0)
    result = squares / left if left else squares * 0 / torch.zeros_like(squares)
    if not keepdim:
        mean = mean.reshape(result.shape)
    return result.to(self.dtype), mean.to(self.dtype)


def deviation(
    self: torch.Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> torch.Tensor:
    return torch.sqrt(variance(self, dim, correction=correction, keepdim=keepdim))


def deviation_and_mean(
    self: torch.Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    spread, mean = variance_and_mean(self, dim, correction=correction, keepdim=keepdim)
    return torch.sqrt(spread), mean


def _along(self: torch.Tensor, dim: int, keepdim: bool, values: Any, places: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))


def kthvalue(self: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    values, places = torch.sort(self, dim=dim, stable=True)
    return _along(self, dim, keepdim, values.narrow(dim, k - 1, 1), places.narrow(dim, k - 1, 1))


def _median(ignore_nan: bool) -> Callable[..., Any]:
    def median(self: torch.Tensor, dim: int = -1, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        values, places = torch.sort(self, dim=dim, stable=True)
        size = self.shape[dim]
        if not self.dtype.is_floating_point:
            return _along(self, dim, keepdim, *(t.narrow(dim, (size - 1) // 2, 1) for t in (values, places)))
        # NaN comes last in the sorted order.
        missing = torch.isnan(values).sum(dim, keepdim=True)
        half = torch.full_like(missing, (size - 1) // 2)
        if ignore_nan:
            left = size - missing
            wanted = torch.where(left == 0, torch.zeros_like(left), torch.div(left - 1, 2, rounding_mode="trunc"))
        else:
            wanted = torch.where(missing > 0, size - missing, half)
        return _along(self, dim, keepdim, values.gather(dim, wanted), places.gather(dim, wanted))

    return median


def _whole(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduced(self: torch.Tensor) -> torch.Tensor:
        if not self.numel():
            return torch.full((), float("nan"), dtype=self.dtype, device=self.device)
        result: torch.Tensor = function(self.reshape(-1), 0)[0]
        return result

    return reduced


def mode(self: torch.Tensor, dim: int = -1, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """The most frequent value, the smallest of several, and the last place it is at."""
    size = self.shape[dim]
    moved = self.movedim(dim, -1)
    ordered, places = torch.sort(moved, dim=-1, stable=True)
    counts = (ordered.unsqueeze(-1) == ordered.unsqueeze(-2)).sum(-1)
    steps = torch.arange(size, dtype=torch.int64, device=self.device)
    # The first of the highest counts: ties go to the smaller value.
    first = (counts * (size + 1) + (size - steps)).argmax(-1, keepdim=True)
    last = first + counts.gather(-1, first) - 1
    values, found = ordered.gather(-1, last), places.gather(-1, last)
    if keepdim:
        return values.movedim(-1, dim), found.movedim(-1, dim)
    return values.squeeze(-1), found.squeeze(-1)


def table() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    return {
        aten._logcumsumexp.default: logcumsumexp,
        aten.cummax.default: _running_extremum(True),
        aten.cummin.default: _running_extremum(False),
        aten.cumprod.default: cumprod,
        aten.cumsum.default: cumsum,
        aten.kthvalue.default: kthvalue,
        aten.logcumsumexp.default: logcumsumexp,
        aten.median.default: _whole(_median(False)),
        aten.median.dim: _median(False),
        aten.mode.default: mode,
        aten.nanmedian.default: _whole(_median(True)),
        aten.nanmedian.dim: _median(True),
        aten.std.correction: deviation,
        aten.std_mean.correction: deviation_and_mean,
        aten.var.correction: variance,
        aten.var_mean.correction: variance_and_mean,
    }
