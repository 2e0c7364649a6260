"""Pooling as maxima and means of windows, and interpolation as products with matrices, one a dimension."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch

_DTYPES = {"b": torch.bool, "i": torch.int64, "f": torch.float32}
Table = list[list[int]]  # by place in the result: the places of its window, -1 for padding


def _strided(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> Table:
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    count = (-(-span // stride) if ceil_mode else span // stride) + 1
    if ceil_mode and (count - 1) * stride >= size + padding:
        count -= 1
    starts = [number * stride - padding for number in range(count)]
    places = [[start + step * dilation for step in range(kernel)] for start in starts]
    return [[place if 0 <= place < size else -1 for place in row] for row in places]


def _adaptive(size: int, count: int) -> Table:
    rows = [list(range(n * size // count, -(-(n + 1) * size // count))) for n in range(count)]
    longest = max((len(row) for row in rows), default=1)
    return [row + [-1] * (longest - len(row)) for row in rows]


def _tensor(values: Any, like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(numpy.asarray(values).tolist(), dtype=_DTYPES[numpy.asarray(values).dtype.kind]).to(like.device)


def _largest(self: torch.Tensor, tables: Sequence[Table]) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest of each window over the last dimensions, and its place in the flattened plane."""
    rank = len(tables)
    lead = self.dim() - rank
    plane = self.shape[lead:]
    lowest = -math.inf if self.dtype.is_floating_point else torch.iinfo(self.dtype).min
    value = self
    flat, valid = numpy.zeros((), dtype=numpy.int64), numpy.ones((), dtype=bool)
    for number, rows in enumerate(tables):
        dim = lead + 2 * number
        table = numpy.array(rows, dtype=numpy.int64)
        picked = value.index_select(dim, _tensor(table.clip(0).flatten(), self))
        value = picked.reshape([*value.shape[:dim], *table.shape, *value.shape[dim + 1 :]])
        shape = [1] * (2 * rank)
        shape[2 * number], shape[2 * number + 1] = table.shape
        flat = flat * plane[number] + table.clip(0).reshape(shape)
        valid = valid & (table >= 0).reshape(shape)
    outer, inner = range(0, 2 * rank, 2), range(1, 2 * rank, 2)
    counts = [len(rows) for rows in tables]
    order = [*range(lead), *(lead + n for n in outer), *(lead + n for n in inner)]
    value = value.permute(order).reshape([*self.shape[:lead], *counts, -1])
    window = value.shape[-1]
    flat, valid = (t.transpose(*outer, *inner).reshape(*counts, window) for t in numpy.broadcast_arrays(flat, valid))
    padding = torch.full((), lowest, dtype=self.dtype, device=self.device)
    value = torch.where(_tensor(valid, self), value, padding)
    best, chosen = value.max(-1, keepdim=True)
    places = _tensor(flat, self).expand(value.shape).gather(-1, chosen)
    return best.squeeze(-1), places.squeeze(-1)


def _each(values: Sequence[int], rank: int) -> list[int]:
    return [values[0]] * rank if len(values) == 1 else list(values)


def _max_pool(rank: int) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    def pool(
        self: torch.Tensor,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,),
        ceil_mode: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        settings = [_each(v, rank) for v in (kernel_size, stride or kernel_size, padding, dilation)]
        sizes = self.shape[-rank:]
        return _largest(self, [_strided(n, *one, ceil_mode) for n, *one in zip(sizes, *settings, strict=True)])

    return pool


def _adaptive_max_pool(self: torch.Tensor, output_size: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    sizes = self.shape[-len(output_size) :]
    return _largest(self, [_adaptive(size, count) for size, count in zip(sizes, output_size, strict=True)])


def _scattered(rank: int) -> Callable[..., torch.Tensor]:
    """Each gradient goes to the element that was the largest; windows may share one."""

    def backward(grad_output: torch.Tensor, self: torch.Tensor, *rest: Any) -> torch.Tensor:
        indices = rest[-1]
        flat = torch.zeros([*self.shape[:-rank], math.prod(self.shape[-rank:])], dtype=self.dtype, device=self.device)
        added = flat.scatter_add(-1, indices.flatten(-rank), grad_output.flatten(-rank))
        return added.reshape(self.shape)

    return backward


def _mean_matrix(table: Table, size: int) -> list[list[float]]:
    """Sums, not means: what they are divided by depends on all dimensions."""
    return [[float(row.count(place)) for place in range(size)] for row in table]


def _apply(self: torch.Tensor, matrices: Sequence[list[list[float]]]) -> torch.Tensor:
    """A matrix for each of the last dimensions."""
    value = self.to(torch.float32)
    for number, rows in enumerate(matrices):
        dim = self.dim() - len(matrices) + number
        matrix = _tensor(rows, self)
        value = (value.movedim(dim, -1) @ matrix.t()).movedim(-1, dim)
    return value


def _avg_pool(rank: int) -> Callable[..., torch.Tensor]:
    def pool(
        self: torch.Tensor,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> torch.Tensor:
        kernels, strides, pads = (_each(v, rank) for v in (kernel_size, stride or kernel_size, padding))
        sizes = self.shape[-rank:]
        tables = [_strided(n, k, s, p, 1, ceil_mode) for n, k, s, p in zip(sizes, kernels, strides, pads, strict=True)]
        total = _apply(self, [_mean_matrix(table, size) for table, size in zip(tables, sizes, strict=True)])
        counts: Any = numpy.ones((), dtype=numpy.float32)
        for table, n, k, s, p in zip(tables, sizes, kernels, strides, pads, strict=True):
            if count_include_pad:
                along = [min(number * s - p + k, n + p) - (number * s - p) for number in range(len(table))]
            else:
                along = [sum(place >= 0 for place in row) for row in table]
            counts = counts[..., None] * numpy.array(along, dtype=numpy.float32)
        divided = total / (divisor_override or _tensor(counts, self))
        return divided.to(self.dtype)

    return pool


def _adaptive_avg_matrices(sizes: Sequence[int], counts: Sequence[int]) -> list[list[list[float]]]:
    made = []
    for size, count in zip(sizes, counts, strict=True):
        rows = [[place for place in row if place >= 0] for row in _adaptive(size, count)]
        made.append([[(place in row) / len(row) for place in range(size)] for row in rows])
    return made


def _adaptive_avg_pool(self: torch.Tensor, output_size: Sequence[int]) -> torch.Tensor:
    sizes = self.shape[-len(output_size) :]
    return _apply(self, _adaptive_avg_matrices(sizes, output_size)).to(self.dtype)


def _adaptive_avg_pool_backward(rank: int) -> Callable[..., torch.Tensor]:
    def backward(grad_output: torch.Tensor, self: torch.Tensor) -> torch.Tensor:
        matrices = _adaptive_avg_matrices(self.shape[-rank:], grad_output.shape[-rank:])
        return _apply(grad_output, [_transposed(matrix) for matrix in matrices]).to(self.dtype)

    return backward


def _transposed(matrix: list[list[float]]) -> list[list[float]]:
    return [list(column) for column in zip(*matrix, strict=True)]


def _cubic(t: float, a: float) -> float:
    t = abs(t)
    if t <= 1:
        return ((a + 2) * t - (a + 3)) * t * t + 1
    return (((t - 5) * t + 8) * t - 4) * a if t < 2 else 0.0


def _weights(kind: str, size: int, count: int, align: bool, scale: float | None) -> list[list[float]]:
    """How much each place counts for each place of the result: PyTorch's rules of where it lies in the source."""
    step = 1 / scale if scale else size / count
    if align:
        step = (size - 1) / max(count - 1, 1)
    if kind.endswith("_aa"):
        return [_antialiased(kind, size, number, step) for number in range(count)]
    rows = []
    for number in range(count):
        row = [0.0] * size
        at = number * step if align else (number + 0.5) * step - 0.5
        if kind == "linear":
            at = max(at, 0.0)
            low = min(int(at), size - 1)
            part = min(max(at - low, 0.0), 1.0)
            row[low] += 1 - part
            row[min(low + 1, size - 1)] += part
        else:
            low = math.floor(at)
            for shift in range(-1, 3):
                row[min(max(low + shift, 0), size - 1)] += _cubic(at - low - shift, -0.75)
        rows.append(row)
    return rows


def _antialiased(kind: str, size: int, number: int, step: float) -> list[float]:
    """A filter as wide as the step, normalised."""
    stretch = max(step, 1.0)
    reach = (1.0 if kind == "linear_aa" else 2.0) * stretch
    centre = step * (number + 0.5)
    low, high = max(int(centre - reach + 0.5), 0), min(int(centre + reach + 0.5), size)
    raw = [0.0] * size
    for place in range(low, high):
        t = (place - centre + 0.5) / stretch
        raw[place] = max(1 - abs(t), 0.0) if kind == "linear_aa" else _cubic(t, -0.5)
    total = sum(raw)
    return [value / total for value in raw]


def _interpolate(kind: str, rank: int) -> Callable[..., torch.Tensor]:
    def forward(self: torch.Tensor, output_size: Sequence[int], *rest: Any) -> torch.Tensor:
        align, scales = rest[0], [*rest[1:], *[None] * rank][:rank]
        matrices = [
            _weights(kind, size, count, align, scale)
            for size, count, scale in zip(self.shape[-rank:], output_size, scales, strict=True)
        ]
        return _apply(self, matrices).to(self.dtype)

    return forward


def _interpolate_backward(kind: str, rank: int) -> Callable[..., torch.Tensor]:
    def backward(
        grad_output: torch.Tensor, output_size: Sequence[int], input_size: Sequence[int], *rest: Any
    ) -> torch.Tensor:
        align, scales = rest[0], [*rest[1:], *[None] * rank][:rank]
        matrices = [
            _transposed(_weights(kind, size, count, align, scale))
            for size, count, scale in zip(input_size[-rank:], output_size, scales, strict=True)
        ]
        return _apply(grad_output, matrices).to(grad_output.dtype)

    return backward


def table() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    found: dict[Any, Callable[..., Any]] = {
        aten.max_pool2d_with_indices.default: _max_pool(2),
        aten.max_pool3d_with_indices.default: _max_pool(3),
        aten.max_pool2d_with_indices_backward.default: _scattered(2),
        aten.max_pool3d_with_indices_backward.default: _scattered(3),
        aten.adaptive_max_pool2d.default: _adaptive_max_pool,
        aten.adaptive_max_pool3d.default: _adaptive_max_pool,
        aten.adaptive_max_pool2d_backward.default: _scattered(2),
        aten.adaptive_max_pool3d_backward.default: _scattered(3),
        aten.fractional_max_pool2d_backward.default: _scattered(2),
        aten.fractional_max_pool3d_backward.default: _scattered(3),
        aten.avg_pool2d.default: _avg_pool(2),
        aten.avg_pool3d.default: _avg_pool(3),
        aten._adaptive_avg_pool2d.default: _adaptive_avg_pool,
        aten._adaptive_avg_pool3d.default: _adaptive_avg_pool,
        aten._adaptive_avg_pool2d_backward.default: _adaptive_avg_pool_backward(2),
        aten._adaptive_avg_pool3d_backward.default: _adaptive_avg_pool_backward(3),
    }
    for name, kind, rank in (
        ("upsample_linear1d", "linear", 1),
        ("upsample_bilinear2d", "linear", 2),
        ("upsample_trilinear3d", "linear", 3),
        ("upsample_bicubic2d", "cubic", 2),
        ("_upsample_bilinear2d_aa", "linear_aa", 2),
        ("_upsample_bicubic2d_aa", "cubic_aa", 2),
    ):
        found[getattr(aten, name).default] = _interpolate(kind, rank)
        found[getattr(aten, f"{name}_backward").default] = _interpolate_backward(kind, rank)
    return found
