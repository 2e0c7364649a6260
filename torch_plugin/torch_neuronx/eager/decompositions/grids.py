"""Sampling a volume at points that a grid names."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch


def _unnormalised(at: torch.Tensor, size: int, align_corners: bool) -> torch.Tensor:
    return (at + 1) / 2 * (size - 1) if align_corners else ((at + 1) * size - 1) / 2


def _padded(at: torch.Tensor, size: int, padding_mode: int, align_corners: bool) -> torch.Tensor:
    if padding_mode == 0:
        return at
    if padding_mode == 2:
        low, span = (0.0, float(size - 1)) if align_corners else (-0.5, float(size))
        if span == 0:
            return torch.zeros_like(at)
        away = (at - low).abs()
        turns = torch.floor(away / span)
        rest = away - turns * span
        odd = torch.floor(turns / 2) * 2 != turns
        at = torch.where(odd, span - rest, rest) + low
    return at.clamp(0, size - 1)


def grid_sampler_3d(
    input: torch.Tensor,  # noqa: A002
    grid: torch.Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> torch.Tensor:
    """Trilinear or nearest; corners outside count as zero where nothing else is asked for."""
    batch, channels, *sizes = input.shape
    count = grid.shape[1:4]
    places = [
        _padded(
            _unnormalised(grid[..., 2 - n].to(torch.float32), size, align_corners), size, padding_mode, align_corners
        )
        for n, size in enumerate(sizes)
    ]
    flat = input.reshape(batch, channels, -1)

    def corner(at: list[torch.Tensor]) -> torch.Tensor:
        index, inside = torch.zeros_like(at[0]).to(torch.int64), torch.ones_like(at[0], dtype=torch.bool)
        for place, size in zip(at, sizes, strict=True):
            inside = inside & (place >= 0) & (place <= size - 1)
            index = index * size + place.clamp(0, size - 1).to(torch.int64)
        chosen = flat.gather(-1, index.reshape(batch, 1, -1).expand(batch, channels, -1))
        picked = chosen.reshape(batch, channels, *count)
        return torch.where(inside.unsqueeze(1), picked, torch.zeros_like(picked))

    if interpolation_mode == 1:
        return corner([torch.round(place) for place in places])
    low = [torch.floor(place) for place in places]
    part = [place - floor for place, floor in zip(places, low, strict=True)]
    total = torch.zeros(batch, channels, *count, dtype=torch.float32, device=input.device)
    for choice in itertools.product((0, 1), repeat=3):
        weight = torch.ones_like(part[0])
        for up, share in zip(choice, part, strict=True):
            weight = weight * (share if up else 1 - share)
        total = total + corner([floor + up for floor, up in zip(low, choice, strict=True)]) * weight.unsqueeze(1)
    return total.to(input.dtype)


def table() -> dict[Any, Callable[..., Any]]:
    return {torch.ops.aten.grid_sampler_3d.default: grid_sampler_3d}
