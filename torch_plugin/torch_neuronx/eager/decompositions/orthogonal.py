"""QR by Householder's reflections, what is made of them, and the exponential of a matrix."""

# ruff: noqa: N803 - arguments are called as in the schema, since PyTorch names them

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from torch_neuronx.eager.decompositions.linalg import _places, _real, _steps

_SQUARINGS = 16
_TERMS = 12


def geqrf(self: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """R above the diagonal, reflections below it, and their factors, with LAPACK's signs."""
    height, width = self.shape[-2:]
    rows, columns = _places(height, self), _places(width, self)
    rest, factors = self, []
    for step in _steps(min(height, width)):
        column = rest[..., :, step]
        head = column[..., step : step + 1]
        below = torch.where(rows > step, column, torch.zeros_like(column))
        tail = (below * below).sum(-1, keepdim=True)
        norm = torch.sqrt(head * head + tail)
        beta = torch.where(head >= 0, -norm, norm)
        plain = tail == 0
        ones = torch.ones_like(beta)
        tau = torch.where(plain, torch.zeros_like(beta), (beta - head) / torch.where(plain, ones, beta))
        reflection = below / torch.where(plain, ones, head - beta)
        reflection = torch.where(rows == step, torch.ones_like(reflection), reflection)
        update = (reflection.unsqueeze(-1) * rest).sum(-2, keepdim=True)
        changed = rest - tau.unsqueeze(-1) * reflection.unsqueeze(-1) * update
        rest = torch.where(columns >= step, changed, rest)
        stored = (rows > step).unsqueeze(-1) & (columns == step)
        rest = torch.where(stored, reflection.unsqueeze(-1), rest)
        factors.append(tau)
    return rest, torch.cat(factors, -1) if factors else self[..., 0, :0]


def _reflect(vectors: torch.Tensor, tau: torch.Tensor, value: torch.Tensor, *, forwards: bool) -> torch.Tensor:
    """The reflections applied to the columns of `value` one after the other."""
    rows = _places(vectors.shape[-2], vectors)
    order = list(_steps(tau.shape[-1]))
    for step in order if forwards else reversed(order):
        column = vectors[..., :, step]
        reflection = torch.where(rows > step, column, torch.zeros_like(column))
        reflection = torch.where(rows == step, torch.ones_like(reflection), reflection).unsqueeze(-1)
        along = (reflection * value).sum(-2, keepdim=True)
        value = value - tau[..., step : step + 1].unsqueeze(-1) * reflection * along
    return value


def householder_product(self: torch.Tensor, tau: torch.Tensor) -> torch.Tensor:
    eye = torch.eye(self.shape[-2], self.shape[-1], dtype=self.dtype, device=self.device)
    return _reflect(self, tau, eye.expand(self.shape), forwards=False)


def ormqr(
    self: torch.Tensor,
    input2: torch.Tensor,
    input3: torch.Tensor,
    left: bool = True,
    transpose: bool = False,
) -> torch.Tensor:
    if left:
        return _reflect(self, input2, input3, forwards=transpose)
    # C Q is (Q^T C^T)^T.
    return _reflect(self, input2, input3.transpose(-1, -2), forwards=not transpose).transpose(-1, -2)


def qr(A: torch.Tensor, mode: str = "reduced") -> tuple[torch.Tensor, torch.Tensor]:
    height, width = A.shape[-2:]
    packed, tau = geqrf(A)
    kept = height if mode == "complete" else min(height, width)
    upper = torch.triu(packed)[..., :kept, :]
    if mode == "r":
        return torch.empty(0, dtype=A.dtype, device=A.device), upper
    eye = torch.eye(height, kept, dtype=A.dtype, device=A.device).expand(*A.shape[:-2], height, kept)
    return _reflect(packed, tau, eye, forwards=False), upper


def matrix_exp(self: torch.Tensor) -> torch.Tensor:
    """Taylor's series of the matrix halved until its norm is below 1/2, squared as often."""
    if self.dtype is not torch.float32:
        return matrix_exp(self.to(torch.float32)).to(self.dtype)
    norm = self.abs().sum(-2).amax(-1)
    halvings = torch.ceil(torch.log2(norm.clamp_min(1e-30) * 2)).clamp(0, _SQUARINGS)
    scaled = self * torch.exp2(-halvings)[..., None, None]
    total = torch.eye(self.shape[-1], dtype=self.dtype, device=self.device).expand(self.shape)
    term = total
    for number in range(1, _TERMS):
        term = term @ scaled / number
        total = total + term
    for number in range(_SQUARINGS):
        total = torch.where((halvings > number)[..., None, None], total @ total, total)
    return torch.where((norm * 2 > 2.0**_SQUARINGS)[..., None, None], torch.full_like(total, math.nan), total)


def table() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    rules: dict[Any, Callable[..., Any]] = {
        aten.geqrf.default: geqrf,
        aten.linalg_householder_product.default: householder_product,
        aten.linalg_matrix_exp.default: matrix_exp,
        aten.linalg_qr.default: qr,
        aten.ormqr.default: ormqr,
    }
    return {operator: _real(rule) for operator, rule in rules.items()}
