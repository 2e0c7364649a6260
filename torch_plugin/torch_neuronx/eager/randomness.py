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


def _given_normal(draw: Stream, mean: Any, std: Any = 1.0, **_: Any) -> torch.Tensor:
    like = mean if isinstance(mean, torch.Tensor) else std
    if isinstance(mean, torch.Tensor) and isinstance(std, torch.Tensor):
        like = torch.broadcast_tensors(mean, std)[0]
    return _normal(draw, like) * std + mean


def _integers(draw: Stream, count: int, low: int, high: int) -> torch.Tensor:
    """int64 in [low, high): the rest of 48 random bits."""
    bits = (draw(2 * count) * (1 << 24)).to(torch.int64)
    words = bits[:count] * (1 << 24) + bits[count:]
    span = torch.full_like(words, min(high - low, 1 << 47))
    return words - torch.div(words, span, rounding_mode="floor") * span + low


def _random_from(draw: Stream, self: torch.Tensor, low: int, to: int | None, **_: Any) -> torch.Tensor:
    high = _whole_range(self.dtype) if to is None else to
    return _integers(draw, self.numel(), low, high).reshape(self.shape).to(self.dtype)


def _random_to(draw: Stream, self: torch.Tensor, to: int, **_: Any) -> torch.Tensor:
    return _random_from(draw, self, 0, to)


def _random(draw: Stream, self: torch.Tensor, **_: Any) -> torch.Tensor:
    return _random_from(draw, self, 0, None)


def _whole_range(dtype: torch.dtype) -> int:
    """As far as the dtype counts exactly, in 32 bits."""
    if dtype.is_floating_point:
        return min(int(2 / torch.finfo(dtype).eps), (1 << 31) - 1) + 1
    return 2 if dtype is torch.bool else min(int(torch.iinfo(dtype).max), (1 << 31) - 1) + 1


def _cauchy(draw: Stream, self: torch.Tensor, median: float = 0, sigma: float = 1, **_: Any) -> torch.Tensor:
    return torch.tan(math.pi * (draw(self.numel()).reshape(self.shape) - 0.5)) * sigma + median


def _log_normal(draw: Stream, self: torch.Tensor, mean: float = 1, std: float = 2, **_: Any) -> torch.Tensor:
    return torch.exp(_normal(draw, self, mean, std))


def _geometric(draw: Stream, self: torch.Tensor, p: float, **_: Any) -> torch.Tensor:
    uniform = 1 - draw(self.numel()).reshape(self.shape)
    return torch.ceil(torch.log(uniform) / math.log1p(-p)).clamp_min(1).to(self.dtype)


def _multinomial(
    draw: Stream, self: torch.Tensor, num_samples: int, replacement: bool = False, **_: Any
) -> torch.Tensor:
    """With replacement by the running sum; without, the smallest of exponential times (Efraimidis and Spirakis)."""
    weights = self.to(torch.float32)
    if replacement:
        edges = weights.cumsum(-1)
        drawn = draw(math.prod(self.shape[:-1]) * num_samples).reshape([*self.shape[:-1], num_samples])
        level = drawn * edges[..., -1:]
        return (level.unsqueeze(-1) >= edges.unsqueeze(-2)).to(torch.int64).sum(-1).clamp_max(self.shape[-1] - 1)
    times = -torch.log(1 - draw(self.numel()).reshape(self.shape)) / weights
    return torch.sort(times, dim=-1, stable=True)[1].narrow(-1, 0, num_samples)


def _permutation(draw: Stream, n: int, **_: Any) -> torch.Tensor:
    keys = (draw(2 * n) * (1 << 24)).to(torch.int64)
    return torch.sort(keys[:n] * (1 << 24) + keys[n:], stable=True)[1]


def _rrelu(
    draw: Stream,
    self: torch.Tensor,
    noise: torch.Tensor,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    *_: Any,
) -> tuple[torch.Tensor, ...]:
    """What it writes first, then what it makes."""
    if not training:
        return noise, torch.where(self > 0, self, self * ((lower + upper) / 2))
    slopes = (draw(self.numel()).reshape(self.shape) * (upper - lower) + lower).to(self.dtype)
    slopes = torch.where(self > 0, torch.ones_like(slopes), slopes)
    return slopes, self * slopes


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
    ("aten::bernoulli", "p"): _bernoulli_float,
    ("aten::cauchy_", ""): _cauchy,
    ("aten::geometric_", ""): _geometric,
    ("aten::log_normal_", ""): _log_normal,
    ("aten::multinomial", ""): _multinomial,
    ("aten::normal", "Tensor_Tensor"): _given_normal,
    ("aten::normal", "Tensor_float"): _given_normal,
    ("aten::normal", "float_Tensor"): _given_normal,
    ("aten::random_", ""): _random,
    ("aten::random_", "from"): _random_from,
    ("aten::random_", "to"): _random_to,
    ("aten::randperm", ""): _permutation,
    ("aten::rrelu_with_noise", ""): _rrelu,
}
