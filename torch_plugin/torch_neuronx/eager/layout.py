"""Tensors as they lie in memory. A graph that undoes a permutation costs nothing; a copy costs a pass over memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Layout:
    """How a tensor of `sizes` is made of a row-major one of `base` sizes: permuted, then expanded."""

    sizes: tuple[int, ...]
    base: tuple[int, ...]
    order: tuple[int, ...]  # the dimension of the tensor that each base dimension is
    as_it_lies: bool

    def apply(self, base: torch.Tensor) -> torch.Tensor:
        """The tensor, given the one that memory holds."""
        if not self.as_it_lies:
            return base
        kept = sorted(self.order)
        value = base.permute([self.order.index(dim) for dim in kept]) if kept else base
        for dim in range(len(self.sizes)):
            if dim not in self.order:
                value = value.unsqueeze(dim)
        return value.expand(self.sizes)

    def undo(self, value: torch.Tensor) -> torch.Tensor:
        """What memory holds of the tensor; without expanded dimensions only."""
        ones = [dim for dim in range(len(self.sizes)) if dim not in self.order]
        order = [*self.order, *ones]
        return value if order == sorted(order) else value.permute(order)


def layout_of(sizes: Sequence[int], strides: Sequence[int]) -> Layout:
    """As it lies where that is a row-major tensor permuted and expanded; else as the row-major copy will."""
    sizes = tuple(sizes)
    plain = Layout(sizes, sizes, tuple(range(len(sizes))), False)
    if math.prod(sizes) == 0 or _row_major(sizes, strides):
        return plain
    kept = [dim for dim, stride in enumerate(strides) if stride != 0 and sizes[dim] != 1]
    order = tuple(sorted(kept, key=lambda dim: -strides[dim]))
    base = tuple(sizes[dim] for dim in order)
    if not _row_major(base, [strides[dim] for dim in order]):
        return plain
    return Layout(sizes, base, order, True)


def _row_major(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    expected = 1
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True
