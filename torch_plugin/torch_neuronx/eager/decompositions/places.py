"""Reading and writing by index, by diagonal, and reductions over places that an index names."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_neuronx.eager.policy import UnsupportedError

_MOST_COMPARISONS = 1 << 26


def scatter_reduce(
    self: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor, reduce: str, *, include_self: bool = True
) -> torch.Tensor:
    """Compares each index with each place: no order of writing, so the result is the same from run to run."""
    size = self.shape[dim]
    if index.numel() * size > _MOST_COMPARISONS:
        raise UnsupportedError("it has too many indices to compare each with each place")
    if not index.numel():
        return self.clone()
    src = src[tuple(slice(0, count) for count in index.shape)]
    narrow = tuple(slice(0, self.shape[d] if d == dim % self.dim() else n) for d, n in enumerate(index.shape))
    base = self[narrow].movedim(dim, -1)
    places = torch.arange(size, dtype=torch.int64, device=self.device)
    hits = index.movedim(dim, -1).unsqueeze(-2) == places.unsqueeze(-1)
    values = src.movedim(dim, -1).unsqueeze(-2)
    any_hit, count = hits.any(-1), hits.to(torch.int64).sum(-1)
    result = _reduced(base, hits, values, reduce, include_self)
    if reduce == "mean":
        divisor = (count + 1 if include_self else count.clamp_min(1)).to(result.dtype)
        floats = result.dtype.is_floating_point
        result = result / divisor if floats else torch.div(result, divisor, rounding_mode="floor")
    result = torch.where(any_hit, result, base).to(self.dtype).movedim(-1, dim)
    if result.shape == self.shape:
        return result
    whole = self.clone()
    whole[narrow] = result
    return whole


def _reduced(
    base: torch.Tensor, hits: torch.Tensor, values: torch.Tensor, reduce: str, include_self: bool
) -> torch.Tensor:
    def hit(neutral: float) -> torch.Tensor:
        return torch.where(hits, values, torch.full((), neutral, dtype=values.dtype, device=values.device))

    if reduce in ("sum", "mean"):
        total = hit(0).sum(-1).to(base.dtype)
        return base + total if include_self else total
    if reduce == "prod":
        product = hit(1).prod(-1).to(base.dtype)
        return base * product if include_self else product
    floats = base.dtype.is_floating_point
    if base.dtype is torch.bool:
        raise UnsupportedError("it takes extrema of truth values")
    if reduce == "amax":
        top = hit(-math.inf if floats else torch.iinfo(base.dtype).min).amax(-1)
        return torch.maximum(base, top) if include_self else top
    bottom = hit(math.inf if floats else torch.iinfo(base.dtype).max).amin(-1)
    return torch.minimum(base, bottom) if include_self else bottom


def _scatter(self: torch.Tensor, dim: int, index: torch.Tensor, src: Any, *, reduce: str) -> torch.Tensor:
    if not isinstance(src, torch.Tensor):
        src = torch.full(index.shape, src, dtype=self.dtype, device=self.device)
    return scatter_reduce(self, dim, index, src, {"add": "sum", "multiply": "prod"}[reduce])


def index_reduce(
    self: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, reduce: str, *, include_self: bool = True
) -> torch.Tensor:
    shape = [1] * source.dim()
    shape[dim] = -1
    spread = index.reshape(shape).expand(source.shape)
    return scatter_reduce(self, dim, spread, source, reduce, include_self=include_self)


def index_put(
    self: torch.Tensor, indices: Sequence[Any], values: torch.Tensor, accumulate: bool = False, unsafe: bool = False
) -> torch.Tensor:
    del unsafe
    masked = any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices)
    if masked and (len(indices) != 1 or values.numel() != 1 or accumulate):
        raise UnsupportedError("how many values it writes depends on a mask")
    if masked:
        return torch.ops.aten.index_put(self, indices, values, accumulate)
    # Which places an index with gaps names is said by the places themselves, indexed likewise.
    places = torch.arange(self.numel(), dtype=torch.int64, device=self.device).reshape(self.shape)
    chosen = torch.ops.aten.index(places, indices)
    given, flat = values.to(self.dtype).expand(chosen.shape).reshape(-1), self.reshape(-1)
    written = (
        flat.scatter_add(0, chosen.reshape(-1), given) if accumulate else flat.scatter(0, chosen.reshape(-1), given)
    )
    return written.reshape(self.shape)


def nonzero_static(self: torch.Tensor, *, size: int, fill_value: int = -1) -> torch.Tensor:
    """The places that are not zero come first when sorted by whether they are."""
    flat = self.reshape(-1) != 0
    order = torch.sort(flat.logical_not().to(torch.int32), stable=True)[1][:size]
    steps = torch.arange(size, dtype=torch.int64, device=self.device)
    if size > order.shape[0]:
        order = torch.cat([order, torch.zeros(size - order.shape[0], dtype=torch.int64, device=self.device)])
    found = steps < flat.to(torch.int64).sum()
    columns = []
    for number in range(self.dim()):
        inner = math.prod(self.shape[number + 1 :])
        place = torch.div(order, inner, rounding_mode="floor")
        columns.append(place - torch.div(place, self.shape[number], rounding_mode="floor") * self.shape[number])
    if not columns:
        return torch.empty(size, 0, dtype=torch.int64, device=self.device)
    filling = torch.full((), fill_value, dtype=torch.int64, device=self.device)
    return torch.where(found.unsqueeze(-1), torch.stack(columns, -1), filling)


def put(self: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool = False) -> torch.Tensor:
    flat = self.reshape(-1)
    written = torch.ops.aten.index_put(flat, [index.reshape(-1)], source.reshape(-1), accumulate)
    return written.reshape(self.shape)


def diagonal(self: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> torch.Tensor:
    """By index into the flattened plane."""
    moved = self.movedim((dim1, dim2), (-2, -1))
    height, width = moved.shape[-2:]
    down, right = max(-offset, 0), max(offset, 0)
    count = max(min(height - down, width - right), 0)
    steps = torch.arange(count, dtype=torch.int64, device=self.device)
    return moved.flatten(-2).index_select(-1, (steps + down) * width + steps + right)


def diagonal_scatter(
    self: torch.Tensor, src: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> torch.Tensor:
    moved = self.movedim((dim1, dim2), (-2, -1))
    height, width = moved.shape[-2:]
    rows = torch.arange(height, dtype=torch.int64, device=self.device).unsqueeze(-1)
    columns = torch.arange(width, dtype=torch.int64, device=self.device)
    if not src.shape[-1]:
        return self.clone()
    along = (rows - max(-offset, 0)).clamp(0, src.shape[-1] - 1)
    spread = src.index_select(-1, along.flatten()).unsqueeze(-1)
    return torch.where(columns - rows == offset, spread, moved).movedim((-2, -1), (dim1, dim2))


def embedding_renorm(self: torch.Tensor, indices: torch.Tensor, max_norm: float, norm_type: float) -> torch.Tensor:
    rows = torch.arange(self.shape[0], dtype=torch.int64, device=self.device)
    used = (indices.reshape(-1, 1) == rows).any(0)
    norms = torch.linalg.vector_norm(self, norm_type, [1])
    scale = torch.where(used & (norms > max_norm), max_norm / (norms + 1e-7), torch.ones_like(norms))
    return self * scale.unsqueeze(-1)


def _distance(apart: torch.Tensor, p: float) -> torch.Tensor:
    if p == 0:
        return (apart != 0).to(apart.dtype).sum(-1)
    if p == 1:
        return apart.abs().sum(-1)
    if p == 2:
        return torch.sqrt((apart * apart).sum(-1))
    if p == math.inf:
        return apart.abs().amax(-1)
    return torch.pow(torch.pow(apart.abs(), p).sum(-1), 1 / p)


def cdist(x1: torch.Tensor, x2: torch.Tensor, p: float, compute_mode: int | None) -> torch.Tensor:
    del compute_mode
    if not x1.shape[-1]:
        batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
        return torch.zeros([*batch, x1.shape[-2], x2.shape[-2]], dtype=x1.dtype, device=x1.device)
    return _distance(x1.unsqueeze(-2) - x2.unsqueeze(-3), p)


def _distance_gradient(apart: torch.Tensor, distance: torch.Tensor, p: float) -> torch.Tensor:
    """Of each coordinate's difference; zero where there is no distance."""
    distance = distance.unsqueeze(-1)
    if p == 0:
        return torch.zeros_like(apart)
    if p == 1:
        return torch.sgn(apart)
    if p == math.inf:
        return torch.sgn(apart) * (apart.abs() == distance).to(apart.dtype)
    safe = torch.where(distance == 0, torch.ones_like(distance), distance)
    slope = apart / safe if p == 2 else torch.sgn(apart) * torch.pow(apart.abs() / safe, p - 1)
    if p < 1:
        slope = torch.where(apart == 0, torch.zeros_like(slope), slope)
    return torch.where(distance == 0, torch.zeros_like(slope), slope)


def cdist_backward(
    grad: torch.Tensor, x1: torch.Tensor, x2: torch.Tensor, p: float, cdist: torch.Tensor
) -> torch.Tensor:
    apart = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    return (grad.unsqueeze(-1) * _distance_gradient(apart, cdist, p)).sum(-2)


def _pairs(count: int, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    found = [(i, j) for i in range(count) for j in range(i + 1, count)]
    return tuple(torch.tensor([pair[side] for pair in found], dtype=torch.int64).to(like.device) for side in (0, 1))


def pdist(self: torch.Tensor, p: float = 2) -> torch.Tensor:
    first, second = _pairs(self.shape[0], self)
    return _distance(self.index_select(0, first) - self.index_select(0, second), p)


def pdist_backward(grad: torch.Tensor, self: torch.Tensor, p: float, pdist: torch.Tensor) -> torch.Tensor:
    first, second = _pairs(self.shape[0], self)
    apart = self.index_select(0, first) - self.index_select(0, second)
    slope = grad.unsqueeze(-1) * _distance_gradient(apart, pdist, p)
    return torch.zeros_like(self).index_add(0, first, slope).index_add(0, second, -slope)


def _truth(every: bool) -> Callable[..., torch.Tensor]:
    def reduced(self: torch.Tensor, dim: Sequence[int] | None = None, keepdim: bool = False) -> torch.Tensor:
        value = self.to(torch.bool)
        dims = {number % max(self.dim(), 1) for number in dim} if dim else set(range(self.dim()))
        for number in sorted(dims, reverse=True):
            value = torch.ops.aten.all.dim(value, number, keepdim) if every else value.any(number, keepdim)
        return value.clone() if not dims else value

    return reduced


def logsumexp(self: torch.Tensor, dim: Sequence[int], keepdim: bool = False) -> torch.Tensor:
    dims = [number % max(self.dim(), 1) for number in dim] if dim else list(range(self.dim()))
    if not self.dim():
        return self.clone()
    value = self.to(torch.float32) if self.dtype in (torch.bfloat16, torch.float16) else self
    value = value if value.is_floating_point() else value.to(torch.get_default_dtype())
    top = value.amax(dims, keepdim=True)
    top = torch.where(top.abs() == math.inf, torch.zeros_like(top), top)
    total = torch.log(torch.exp(value - top).sum(dims, keepdim=keepdim))
    result = total + top.reshape(total.shape)
    return result.to(self.dtype) if self.is_floating_point() else result


def vector_norm(
    self: torch.Tensor,
    ord: float = 2,  # noqa: A002
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    kind = dtype or self.dtype
    value = self.abs() if not self.is_complex() else torch.abs(self)
    narrow = value.dtype in (torch.bfloat16, torch.float16)
    value = value.to(torch.float32) if narrow else value
    dims = [number % max(self.dim(), 1) for number in dim] if dim else list(range(self.dim()))
    if not self.dim():
        value, dims = value.reshape(1), [0]
    if ord == math.inf:
        result = value.amax(dims, keepdim)
    elif ord == -math.inf:
        result = value.amin(dims, keepdim)
    elif ord == 0:
        result = (value != 0).to(value.dtype).sum(dims, keepdim)
    elif ord == 1:
        result = value.sum(dims, keepdim)
    elif ord == 2:
        result = torch.sqrt((value * value).sum(dims, keepdim))
    else:
        result = torch.pow(torch.pow(value, ord).sum(dims, keepdim), 1 / ord)
    result = result if self.dim() else result.reshape(())
    return result.to(kind)


def searchsorted(
    sorted_sequence: torch.Tensor,
    self: torch.Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: torch.Tensor | None = None,
) -> torch.Tensor:
    """Counts what lies before each value."""
    if sorter is not None:
        sorted_sequence = sorted_sequence.gather(-1, sorter)
    if sorted_sequence.shape[-1] * self.numel() > _MOST_COMPARISONS:
        raise UnsupportedError("it has too many values to compare each with each")
    behind = right or side == "right"
    edges, values = sorted_sequence.unsqueeze(-2), self.unsqueeze(-1)
    if sorted_sequence.dim() == 1:
        edges = sorted_sequence
    before = edges <= values if behind else edges < values
    return before.to(torch.int64).sum(-1).to(torch.int32 if out_int32 else torch.int64)


def bucketize(
    self: torch.Tensor, boundaries: torch.Tensor, *, out_int32: bool = False, right: bool = False
) -> torch.Tensor:
    return searchsorted(boundaries, self, out_int32=out_int32, right=right)


def angle(self: torch.Tensor) -> torch.Tensor:
    value = self if self.is_floating_point() else self.to(torch.get_default_dtype())
    turned = torch.where(value < 0, torch.full_like(value, math.pi), torch.zeros_like(value))
    return torch.where(torch.isnan(value), value, turned)


def embedding(weight: torch.Tensor, indices: torch.Tensor, *_: Any) -> Any:
    """Of one index without a dimension; others lower as they are."""
    if indices.dim():
        return NotImplemented
    return weight.index_select(0, indices.reshape(1).to(torch.int64)).reshape(weight.shape[1:])


def unfold(self: torch.Tensor, dimension: int, size: int, step: int) -> torch.Tensor:
    """Windows along a dimension, which come last."""
    if not self.dim():
        return self.reshape(1)[:size]
    dim = dimension % self.dim()
    count = (self.shape[dim] - size) // step + 1
    starts = torch.arange(count, dtype=torch.int64, device=self.device).unsqueeze(-1) * step
    places = starts + torch.arange(size, dtype=torch.int64, device=self.device)
    picked = self.index_select(dim, places.reshape(-1))
    return picked.reshape([*self.shape[:dim], count, size, *self.shape[dim + 1 :]]).movedim(dim + 1, -1)


def table() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    return {
        aten._cdist_backward.default: cdist_backward,
        aten._cdist_forward.default: cdist,
        aten._index_put_impl.default: index_put,
        aten._pdist_backward.default: pdist_backward,
        aten._pdist_forward.default: pdist,
        aten.all.dims: _truth(True),
        aten.angle.default: angle,
        aten.any.dims: _truth(False),
        aten.bucketize.Tensor: bucketize,
        aten.searchsorted.Tensor: searchsorted,
        aten.unfold.default: unfold,
        aten.unfold_copy.default: unfold,
        aten.diagonal.default: diagonal,
        aten.diagonal_copy.default: diagonal,
        aten.diagonal_scatter.default: diagonal_scatter,
        aten.embedding.default: embedding,
        aten.embedding_renorm.default: embedding_renorm,
        aten.index_reduce.default: index_reduce,
        aten.linalg_vector_norm.default: vector_norm,
        aten.logsumexp.default: logsumexp,
        aten.nonzero_static.default: nonzero_static,
        aten.put.default: put,
        aten.scatter.reduce: _scatter,
        aten.scatter.value_reduce: _scatter,
        aten.scatter_reduce.two: scatter_reduce,
    }
