"""Random operators as graphs: Philox 4x32-10 counts through a stream that a seed and an offset name.

A counter-based generator has no state to carry from one NEFF to the next, and gives the same numbers on every host.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

_MASK = 0xFFFF_FFFF
_ROUNDS = 10
_MULTIPLIERS = (0xD251_1F53, 0xCD9E_8D57)
_WEYL = (0x9E37_79B9, 0xBB67_AE85)

Stream = Callable[[int], torch.Tensor]
"""Gives that many float32 numbers in [0, 1)."""


def numbers_taken(count: int) -> int:
    """What a graph that draws `count` numbers takes from the stream: whole blocks of four."""
    return -(-count // 4) * 4


def uniform(seed: torch.Tensor, offset: torch.Tensor, count: int) -> torch.Tensor:
    """float32 in [0, 1), with the 24 bits that a float32 holds."""
    blocks = -(-count // 4)
    counter = torch.arange(blocks, dtype=torch.int64, device=offset.device) + torch.div(
        offset, 4, rounding_mode="floor"
    )
    zero = torch.zeros_like(counter)
    words = [counter & _MASK, _high(counter), zero, zero]
    keys = [seed & _MASK, _high(seed)]
    for _ in range(_ROUNDS):
        first, second = words[0] * _MULTIPLIERS[0], words[2] * _MULTIPLIERS[1]
        words = [
            _high(second) ^ words[1] ^ keys[0],
            second & _MASK,
            _high(first) ^ words[3] ^ keys[1],
            first & _MASK,
        ]
        keys = [(key + step) & _MASK for key, step in zip(keys, _WEYL, strict=True)]
    bits = _shifted(torch.stack(words, 1).reshape(-1)[:count], 8)
    return bits.to(torch.float32) * (1.0 / (1 << 24))


def _high(value: torch.Tensor) -> torch.Tensor:
    return _shifted(value, 32) & _MASK


def _shifted(value: torch.Tensor, bits: int) -> torch.Tensor:
    return torch.bitwise_right_shift(value, torch.full_like(value, bits))


def _uniform(draw: Stream, self: torch.Tensor, low: float = 0, high: float = 1, **_: Any) -> torch.Tensor:
    return draw(self.numel()).reshape(self.shape) * (high - low) + low


def _normal(draw: Stream, self: torch.Tensor, mean: float = 0, std: float = 1, **_: Any) -> torch.Tensor:
    half = -(-self.numel() // 2)
    pair = draw(2 * half)
    radius = torch.sqrt(-2 * torch.log(1 - pair[:half]))
    angle = pair[half:] * (2 * math.pi)
    both = torch.cat([radius * torch.cos(angle), radius * torch.sin(angle)])
    return both[: self.numel()].reshape(self.shape) * std + mean


def _bernoulli_float(draw: Stream, self: torch.Tensor, p: float = 0.5, **_: Any) -> torch.Tensor:
    return (draw(self.numel()).reshape(self.shape) < p).to(self.dtype)


def _bernoulli(draw: Stream, self: torch.Tensor, **_: Any) -> torch.Tensor:
    return (draw(self.numel()).reshape(self.shape) < self).to(self.dtype)


def _bernoulli_tensor(draw: Stream, self: torch.Tensor, p: torch.Tensor, **_: Any) -> torch.Tensor:
    return (draw(self.numel()).reshape(self.shape) < p).to(self.dtype)


def _exponential(draw: Stream, self: torch.Tensor, rate: float = 1, **_: Any) -> torch.Tensor:
    return torch.log(1 - draw(self.numel()).reshape(self.shape)) * (-1 / rate)


def _dropout(draw: Stream, input: torch.Tensor, p: float, train: bool | None) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: A002
    if train is False or p == 0:
        return input.clone(), torch.ones_like(input, dtype=torch.bool)
    mask = draw(input.numel()).reshape(input.shape) >= p
    scale = 0.0 if p == 1 else 1 / (1 - p)
    return torch.where(mask, input * scale, torch.zeros_like(input)), mask


# By operator and overload. The count is of numbers drawn for a tensor of that many elements.
RANDOM: dict[tuple[str, str], Callable[..., Any]] = {
    ("aten::uniform_", ""): _uniform,
    ("aten::normal_", ""): _normal,
    ("aten::bernoulli_", "float"): _bernoulli_float,
    ("aten::bernoulli_", "Tensor"): _bernoulli_tensor,
    ("aten::bernoulli", ""): _bernoulli,
    ("aten::bernoulli", "out"): _bernoulli,
    ("aten::exponential_", ""): _exponential,
    ("aten::native_dropout", ""): _dropout,
}
