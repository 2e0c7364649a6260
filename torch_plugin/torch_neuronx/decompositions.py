"""Operators rewritten while a program is captured, in terms of operators that lower, and lower right."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@functools.cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """torch-mlir's own table with ours on top; for ExportedProgram.run_decompositions and for AOTAutograd."""
    import torch
    from torch._decomp import get_decompositions
    from torch_mlir.extras.fx_decomp_util import get_decomposition_table

    aten = torch.ops.aten
    table = {
        **get_decomposition_table(),
        **get_decompositions([aten.upsample_nearest1d.vec, aten.upsample_nearest2d.vec, aten.upsample_nearest3d.vec]),
        aten.addmm.default: addmm,
        aten.addmv.default: addmm,
        aten.as_strided_scatter.default: as_strided_scatter,
        aten.empty.memory_format: empty,
        aten.empty_like.default: empty_like,
        aten.empty_permuted.default: empty,
        aten.empty_strided.default: empty,
        aten.fmod.Scalar: fmod,
        aten.histc.default: histc,
        aten.remainder.Scalar: remainder,
        aten.remainder.Scalar_Tensor: remainder,
        aten.remainder.Tensor: remainder,
    }
    del table[aten.full.default]  # lowers as it is; taken apart it needs the unset memory that `empty` replaces
    return table


def addmm(
    bias: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    """Every Linear is one, and `addmv` differs in rank alone.

    PyTorch's own decomposition multiplies both terms by one and keeps the products.
    """
    if not left.dtype.is_floating_point and not left.dtype.is_complex:
        beta, alpha = int(beta), int(alpha)
    product = left @ right
    if beta == 0:  # the bias may be unset memory
        return product if alpha == 1 else product * alpha
    return (bias if beta == 1 else bias * beta) + (product if alpha == 1 else product * alpha)


def as_strided_scatter(
    value: torch.Tensor, source: torch.Tensor, size: list[int], stride: list[int], offset: int | None = None
) -> torch.Tensor:
    """A view of a view, written: where calls overwrite memory that their arguments share."""
    import torch

    if not value.is_contiguous():
        return NotImplemented
    places = torch.full(size, offset or 0, dtype=torch.int64, device=value.device)
    for dim, (length, step) in enumerate(zip(size, stride, strict=True)):
        along = torch.arange(length, dtype=torch.int64, device=value.device) * step
        places = places + along.reshape([-1 if other == dim else 1 for other in range(len(size))])
    return value.reshape(-1).index_put((places.reshape(-1),), source.reshape(-1)).reshape(value.shape)


def empty(size: list[int], *layout: list[int], dtype: Any = None, device: Any = None, **_: Any) -> torch.Tensor:
    """Zeros: strides have no meaning in StableHLO, and unset memory would make results differ from run to run."""
    import torch

    return torch.full(size, 0, dtype=dtype or torch.get_default_dtype(), device=device)


def empty_like(value: torch.Tensor, *, dtype: Any = None, device: Any = None, **_: Any) -> torch.Tensor:
    """Zeros, as for `empty`."""
    return empty(list(value.shape), dtype=dtype or value.dtype, device=device or value.device)


def fmod(value: torch.Tensor, other: float) -> torch.Tensor:
    """torch-mlir lowers the form with two tensors only."""
    import torch

    return torch.ops.aten.fmod.Tensor(value, _like(value, other))


def remainder(value: torch.Tensor | float, other: torch.Tensor | float) -> torch.Tensor:
    """torch-mlir gives the result the sign of the dividend, as fmod has; PyTorch gives it that of the divisor."""
    import torch

    if not isinstance(value, torch.Tensor):
        assert isinstance(other, torch.Tensor)
        value = _like(other, value)
    divisor = other if isinstance(other, torch.Tensor) else _like(value, other)
    rest = torch.ops.aten.fmod.Tensor(value, divisor)
    return torch.where((rest != 0) & ((rest < 0) != (divisor < 0)), rest + divisor, rest)


def _like(value: torch.Tensor, number: float) -> torch.Tensor:
    import torch

    return torch.full((), number, dtype=torch.result_type(value, number), device=value.device)


def histc(input: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> torch.Tensor:  # noqa: A002
    """Counts an interval as the difference of two counts "at or above its edge": no scatter, no index arithmetic.

    Costs elements x bins comparisons, which the router of a mixture of experts, its main user, can afford. Values that
    are NaN or outside [min, max] count nowhere, the last interval includes its upper edge, as in PyTorch.
    """
    import torch

    values = input.reshape(-1)
    kind = input.dtype if input.dtype.is_floating_point else torch.float32
    if min == max:
        low, high = values.amin().to(kind), values.amax().to(kind)
        flat = low == high
        low, high = torch.where(flat, low - 1, low), torch.where(flat, high + 1, high)
        steps = torch.arange(bins, dtype=kind, device=input.device)
        edges = low + (high - low) * (steps / bins)
    else:
        edges = torch.linspace(min, max, bins + 1, dtype=kind, device=input.device)[:-1]
        high = torch.full((), max, dtype=kind, device=input.device)
    at_least = (values[:, None] >= edges).sum(0)
    above = torch.cat([at_least[1:], (values > high).sum().reshape(1)])
    return (at_least - above).to(input.dtype)
