"""Operators whose schema or decomposition needs help in eager mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def stand_in_for(name: str, arguments: Sequence[Any]) -> torch._ops.OpOverload | None:
    """An operator with the same parameters that says what it overwrites, for one that does not say so.

    `native_batch_norm` moves the running statistics in training and declares nothing of it.
    """
    if name == "aten::native_batch_norm" and arguments[3] is not None and arguments[5]:
        found: torch._ops.OpOverload = torch.ops.aten._native_batch_norm_legit.default
        return found
    return None


def table() -> dict[Any, Callable[..., Any]]:
    """On top of the table for whole programs."""
    aten = torch.ops.aten
    return {
        aten.amax.default: extremum(aten.amax),
        aten.amin.default: extremum(aten.amin),
        aten.argmax.default: place_of_extremum(torch.amax),
        aten.argmin.default: place_of_extremum(torch.amin),
        aten.max.dim: extremum_and_place(torch.amax),
        aten.min.dim: extremum_and_place(torch.amin),
        aten.detach_.default: detached,
        aten.div.Tensor_mode: divide,
        aten.native_batch_norm.default: batch_norm,
    }


def detached(self: torch.Tensor) -> torch.Tensor:
    """What PyTorch does to a constant when it makes a tensor of it."""
    return self


def divide(self: torch.Tensor, other: torch.Tensor, *, rounding_mode: str | None) -> Any:
    return torch.ops.aten.div.Tensor(self, other) if rounding_mode is None else NotImplemented


def extremum_and_place(extreme: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """torch-mlir's reduction passes NaN over, and orders truth values as signed numbers: true below false."""

    def reduced(self: torch.Tensor, dim: int, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        best = extreme(self, dim, keepdim=True)
        hits = self == best
        if self.dtype.is_floating_point:
            hits = torch.where(torch.isnan(best), torch.isnan(self), hits)
        place = hits.to(torch.int32).argmax(dim, keepdim=True)
        return (best, place) if keepdim else (best.squeeze(dim), place.squeeze(dim))

    return reduced


def place_of_extremum(extreme: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """As for `extremum_and_place`; integers lower right."""

    def reduced(self: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
        if not self.dtype.is_floating_point or not self.dim():
            return NotImplemented
        if dim is not None:
            return extremum_and_place(extreme)(self, dim, keepdim)[1]
        place = extremum_and_place(extreme)(self.reshape(-1), 0)[1]
        return place.reshape([1] * self.dim()) if keepdim else place

    return reduced


def extremum(operator: Any) -> Callable[..., Any]:
    """Of a tensor without dimensions it is the tensor; torch-mlir ends the process when it reduces one."""

    def reduced(self: torch.Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> Any:
        if not self.dim():
            return self.clone()
        if self.dtype is torch.bool:
            return operator(self.to(torch.int32), dim, keepdim).to(torch.bool)
        return NotImplemented

    return reduced


def batch_norm(
    self: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor | None,
    variance: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """In evaluation, where the statistics that training saves are empty: torch-mlir gives them a size."""
    del momentum
    if training or mean is None or variance is None:
        return NotImplemented
    channels = [1, -1, *[1] * (self.dim() - 2)]
    value = (self - mean.view(channels)) * torch.rsqrt(variance + eps).view(channels)
    if weight is not None:
        value = value * weight.view(channels)
    if bias is not None:
        value = value + bias.view(channels)
    return value.to(self.dtype), self.new_empty(0), self.new_empty(0)
