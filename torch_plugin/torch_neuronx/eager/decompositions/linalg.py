"""Factorisations by columns: as many steps as the matrix has columns, each on a whole batch. Larger ones run on the
host, where LAPACK's blocked algorithms are."""

# ruff: noqa: N803 - arguments are called as in the schema, since PyTorch names them

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from torch_neuronx.eager.policy import UnsupportedError

_LARGEST = 48


def _steps(size: int) -> range:
    if size > _LARGEST:
        raise UnsupportedError(f"the matrix has {size} columns; the device factorises up to {_LARGEST}")
    return range(size)


def _real(function: Callable[..., Any]) -> Callable[..., Any]:
    """Complex matrices have no graph."""

    @functools.wraps(function)
    def checked(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return NotImplemented if self.is_complex() else function(self, *args, **kwargs)

    return checked


def _places(size: int, like: torch.Tensor) -> torch.Tensor:
    return torch.arange(size, dtype=torch.int64, device=like.device)


def _info(matrix: torch.Tensor) -> torch.Tensor:
    return torch.zeros(matrix.shape[:-2], dtype=torch.int32, device=matrix.device)


def cholesky_ex(
    self: torch.Tensor, *, upper: bool = False, check_errors: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Column by column; `info` is the first leading minor that is not positive."""
    del check_errors
    size = self.shape[-1]
    rest = self.transpose(-1, -2) if upper else self
    rows = _places(size, self)
    info = _info(self)
    columns = []
    for step in _steps(size):
        pivot = rest[..., step, step]
        info = torch.where((info == 0) & ~(pivot > 0), torch.full_like(info, step + 1), info)
        column = torch.where(
            rows >= step, rest[..., :, step] / torch.sqrt(pivot).unsqueeze(-1), torch.zeros_like(pivot).unsqueeze(-1)
        )
        rest = rest - column.unsqueeze(-1) * column.unsqueeze(-2)
        columns.append(column)
    factor = torch.stack(columns, -1) if columns else self.clone()
    return (factor.transpose(-1, -2) if upper else factor), info


def cholesky(self: torch.Tensor, upper: bool = False) -> torch.Tensor:
    return cholesky_ex(self, upper=upper)[0]


def substitute(matrix: torch.Tensor, right: torch.Tensor, *, upper: bool, unitriangular: bool = False) -> torch.Tensor:
    """X of `matrix` X = `right`, row by row."""
    size = matrix.shape[-1]
    batch = torch.broadcast_shapes(matrix.shape[:-2], right.shape[:-2])
    rest = right.expand(*batch, *right.shape[-2:])
    found: list[torch.Tensor] = []
    rows = list(_steps(size))
    for row in reversed(rows) if upper else rows:
        value = rest[..., row : row + 1, :]
        if not unitriangular:
            value = value / matrix[..., row : row + 1, row : row + 1]
        rest = rest - matrix[..., :, row : row + 1] * value
        found.append(value)
    if upper:
        found.reverse()
    return torch.cat(found, -2) if found else rest.clone()


def solve_triangular(
    self: torch.Tensor,
    B: torch.Tensor,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> torch.Tensor:
    if left:
        return substitute(self, B, upper=upper, unitriangular=unitriangular)
    turned = substitute(self.transpose(-1, -2), B.transpose(-1, -2), upper=not upper, unitriangular=unitriangular)
    return turned.transpose(-1, -2)


def triangular_solve(
    self: torch.Tensor,
    A: torch.Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    matrix = A.transpose(-1, -2) if transpose else A
    batch = torch.broadcast_shapes(self.shape[:-2], A.shape[:-2])
    solved = substitute(matrix, self, upper=upper != transpose, unitriangular=unitriangular)
    return solved, A.expand(*batch, *A.shape[-2:]).clone()


def eliminate(self: torch.Tensor, pivot: bool = True) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """LU with partial pivoting: both factors in one matrix, the exchanged rows counted from one, the order of rows, and
    `info`, the first pivot that is zero."""
    height, width = self.shape[-2:]
    rows, columns = _places(height, self), _places(width, self)
    order = rows.expand(*self.shape[:-2], height)
    rest, info = self, _info(self)
    swaps = []
    for step in _steps(min(height, width)):
        if pivot:
            sizes = torch.where(rows >= step, rest[..., :, step].abs(), torch.full_like(rest[..., :, step], -1.0))
            chosen = sizes.argmax(-1, keepdim=True)
        else:
            chosen = torch.full((*self.shape[:-2], 1), step, dtype=torch.int64, device=self.device)
        swaps.append(chosen + 1)
        exchange = torch.where(rows == step, chosen, torch.where(rows == chosen, torch.full_like(rows, step), rows))
        order = order.gather(-1, exchange)
        rest = rest.gather(-2, exchange.unsqueeze(-1).expand(rest.shape))
        head = rest[..., step, step]
        info = torch.where((info == 0) & (head == 0), torch.full_like(info, step + 1), info)
        divisor = torch.where(head == 0, torch.ones_like(head), head).unsqueeze(-1)
        below = torch.where(rows > step, rest[..., :, step] / divisor, torch.zeros_like(divisor))
        update = torch.where(columns > step, rest[..., step, :], torch.zeros_like(divisor))
        rest = rest - below.unsqueeze(-1) * update.unsqueeze(-2)
        place = (rows > step).unsqueeze(-1) & (columns == step)
        rest = torch.where(place, below.unsqueeze(-1), rest)
    exchanged = torch.cat(swaps, -1) if swaps else order[..., :0]
    return rest, exchanged.to(torch.int32), order, info


def lu_factor_ex(
    A: torch.Tensor,
    *,
    pivot: bool = True,
    check_errors: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    del check_errors
    factors, swaps, _, info = eliminate(A, pivot)
    return factors, swaps, info


def _triangles(factors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    height, width = factors.shape[-2:]
    small = min(height, width)
    eye = torch.eye(height, small, dtype=factors.dtype, device=factors.device)
    return torch.tril(factors[..., :, :small], -1) + eye, torch.triu(factors[..., :small, :])


def _permutation(order: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """P with A = P L U, where row i of L U is row order[i] of A."""
    rows = torch.arange(order.shape[-1], dtype=torch.int64, device=order.device)
    return (rows.unsqueeze(-1) == order.unsqueeze(-2)).to(dtype)


def lu(A: torch.Tensor, *, pivot: bool = True) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    factors, _, order, _ = eliminate(A, pivot)
    lower, upper = _triangles(factors)
    permutation = _permutation(order, A.dtype) if pivot else torch.empty(0, dtype=A.dtype, device=A.device)
    return permutation, lower, upper


def _order_of(swaps: torch.Tensor, height: int) -> torch.Tensor:
    rows = torch.arange(height, dtype=torch.int64, device=swaps.device)
    order = rows.expand(*swaps.shape[:-1], height)
    for step in _steps(swaps.shape[-1]):
        chosen = swaps[..., step : step + 1].to(torch.int64) - 1
        exchange = torch.where(rows == step, chosen, torch.where(rows == chosen, torch.full_like(rows, step), rows))
        order = order.gather(-1, exchange)
    return order


def lu_unpack(
    LU_data: torch.Tensor,
    LU_pivots: torch.Tensor,
    unpack_data: bool = True,
    unpack_pivots: bool = True,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    nothing = torch.empty(0, dtype=LU_data.dtype, device=LU_data.device)
    lower, upper = _triangles(LU_data) if unpack_data else (nothing, nothing)
    if not unpack_pivots:
        return nothing, lower, upper
    return _permutation(_order_of(LU_pivots, LU_data.shape[-2]), LU_data.dtype), lower, upper


def _solved(factors: torch.Tensor, order: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    batch = torch.broadcast_shapes(factors.shape[:-2], right.shape[:-2])
    right = right.expand(*batch, *right.shape[-2:])
    moved = right.gather(-2, order.unsqueeze(-1).expand(right.shape))
    return substitute(factors, substitute(factors, moved, upper=False, unitriangular=True), upper=True)


def lu_solve(
    LU: torch.Tensor,
    pivots: torch.Tensor,
    B: torch.Tensor,
    *,
    left: bool = True,
    adjoint: bool = False,
) -> torch.Tensor:
    right = B if left else B.transpose(-1, -2)
    if adjoint == left:
        # The transposed system: U^T, then L^T, then the rows back in place.
        turned = LU.transpose(-1, -2)
        value = substitute(turned, substitute(turned, right, upper=False), upper=True, unitriangular=True)
        inverse = torch.argsort(_order_of(pivots, LU.shape[-1]), dim=-1)
        value = value.gather(-2, inverse.unsqueeze(-1).expand(value.shape))
    else:
        value = _solved(LU, _order_of(pivots, LU.shape[-1]), right)
    return value if left else value.transpose(-1, -2)


def solve_ex(
    A: torch.Tensor,
    B: torch.Tensor,
    *,
    left: bool = True,
    check_errors: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Result, factors, pivots, info; a batch of vectors on the right is told from one matrix as PyTorch does."""
    del check_errors
    vector = B.dim() == 1 or (A.dim() - 1 == B.dim() and B.shape == A.shape[:-1])
    right = B.unsqueeze(-1) if vector else B
    matrix = A if left else A.transpose(-1, -2)
    factors, swaps, order, info = eliminate(matrix)
    batch = torch.broadcast_shapes(order.shape[:-1], right.shape[:-2])
    turned = right if left or vector else right.transpose(-1, -2)
    value = _solved(factors, order.expand(*batch, order.shape[-1]), turned)
    value = value if left or vector else value.transpose(-1, -2)
    return (value.squeeze(-1) if vector else value), factors, swaps, info


def inv_ex(A: torch.Tensor, *, check_errors: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    del check_errors
    factors, _, order, info = eliminate(A)
    eye = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device).expand(A.shape)
    return _solved(factors, order, eye), info


def _sign_of(swaps: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    places = torch.arange(1, swaps.shape[-1] + 1, dtype=swaps.dtype, device=swaps.device)
    moved = (swaps != places).sum(-1)
    even = torch.div(moved, 2, rounding_mode="floor") * 2 == moved
    ones = torch.ones(swaps.shape[:-1], dtype=like.dtype, device=like.device)
    return torch.where(even, ones, -ones)


def det(A: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    factors, swaps, _, _ = eliminate(A.transpose(-1, -2))  # gradients of row-major matrices count on that
    diagonal = torch.diagonal(factors, dim1=-2, dim2=-1)
    return diagonal.prod(-1) * _sign_of(swaps, A), factors, swaps


def slogdet(A: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    factors, swaps, _, _ = eliminate(A.transpose(-1, -2))
    diagonal = torch.diagonal(factors, dim1=-2, dim2=-1)
    sign = torch.sgn(diagonal).prod(-1) * _sign_of(swaps, A)
    return sign, torch.log(diagonal.abs()).sum(-1), factors, swaps


def cholesky_solve(self: torch.Tensor, A: torch.Tensor, upper: bool) -> torch.Tensor:
    lower = A.transpose(-1, -2) if upper else A
    first = substitute(lower, self, upper=False)
    return substitute(lower.transpose(-1, -2), first, upper=True)


def cholesky_inverse(self: torch.Tensor, upper: bool = False) -> torch.Tensor:
    eye = torch.eye(self.shape[-1], dtype=self.dtype, device=self.device).expand(self.shape)
    return cholesky_solve(eye, self, upper)


def table() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    rules: dict[Any, Callable[..., Any]] = {
        aten._cholesky_solve_helper.default: cholesky_solve,
        aten._linalg_det.default: det,
        aten._linalg_slogdet.default: slogdet,
        aten._linalg_solve_ex.default: solve_ex,
        aten.cholesky.default: cholesky,
        aten.cholesky_inverse.default: cholesky_inverse,
        aten.linalg_cholesky_ex.default: cholesky_ex,
        aten.linalg_inv_ex.default: inv_ex,
        aten.linalg_lu.default: lu,
        aten.linalg_lu_factor_ex.default: lu_factor_ex,
        aten.linalg_lu_solve.default: lu_solve,
        aten.linalg_solve_triangular.default: solve_triangular,
        aten.lu_unpack.default: lu_unpack,
        aten.triangular_solve.default: triangular_solve,
    }
    return {operator: _real(rule) for operator, rule in rules.items()}
