"""Cells of LSTM and GRU, which PyTorch fuses on every device but the CPU.

Gates follow `torch.nn.LSTM` and `torch.nn.GRU`. What a cell saves for its gradient (`workspace`) is its own affair.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Tensor = torch.Tensor


def table() -> dict[Any, Callable[..., Any]]:
    aten = torch.ops.aten
    return {
        aten._thnn_fused_lstm_cell.default: lstm,
        aten._thnn_fused_lstm_cell_backward_impl.default: lstm_backward,
        aten._thnn_fused_gru_cell.default: gru,
        aten._thnn_fused_gru_cell_backward.default: gru_backward,
    }


def lstm(
    input_gates: Tensor, hidden_gates: Tensor, cx: Tensor, input_bias: Tensor | None = None, hidden_bias: Any = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Gates (batch, 4 * hidden), state (batch, hidden); the new hidden state, the new state, the gates' values."""
    gates = _wide(input_gates) + _wide(hidden_gates)
    if input_bias is not None:
        gates = gates + _wide(input_bias) + _wide(hidden_bias)
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
    cy = f * _wide(cx) + i * g
    return tuple(value.to(cx.dtype) for value in (o * torch.tanh(cy), cy, torch.cat((i, f, g, o), 1)))  # type: ignore[return-value]


def lstm_backward(
    grad_hy: Tensor | None, grad_cy: Tensor | None, cx: Tensor, cy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of the gates, of the state, and of the sum of the biases."""
    if grad_hy is None and grad_cy is None:
        return None, None, None
    i, f, g, o = _wide(workspace).chunk(4, 1)
    state = torch.tanh(_wide(cy))
    hidden = torch.zeros_like(state) if grad_hy is None else _wide(grad_hy)
    cell = hidden * o * (1 - state * state)
    if grad_cy is not None:
        cell = cell + _wide(grad_cy)
    gates = torch.cat(
        (cell * g * i * (1 - i), cell * _wide(cx) * f * (1 - f), cell * i * (1 - g * g), hidden * state * o * (1 - o)),
        1,
    )
    bias = gates.sum(0).to(workspace.dtype) if has_bias else None
    return gates.to(workspace.dtype), (cell * f).to(cx.dtype), bias


def gru(
    input_gates: Tensor, hidden_gates: Tensor, hx: Tensor, input_bias: Tensor | None = None, hidden_bias: Any = None
) -> tuple[Tensor, Tensor]:
    """Gates (batch, 3 * hidden), state (batch, hidden); the new state, and what the gradient needs."""
    given, held = _wide(input_gates), _wide(hidden_gates)
    if input_bias is not None:
        given, held = given + _wide(input_bias), held + _wide(hidden_bias)
    (ir, iz, into), (hr, hz, kept) = given.chunk(3, 1), held.chunk(3, 1)
    r, z = torch.sigmoid(ir + hr), torch.sigmoid(iz + hz)
    n = torch.tanh(into + r * kept)
    hy = n + z * (_wide(hx) - n)
    return hy.to(hx.dtype), torch.cat((r, z, n, _wide(hx), kept), 1).to(hx.dtype)


def gru_backward(grad_hy: Tensor, workspace: Tensor, has_bias: bool) -> tuple[Tensor | None, ...]:
    """The gradients of the input's and the state's gates, of the state, and of the two biases."""
    r, z, n, hx, kept = _wide(workspace).chunk(5, 1)
    grad = _wide(grad_hy)
    of_n = grad * (1 - z) * (1 - n * n)
    of_z = grad * (hx - n) * z * (1 - z)
    of_r = of_n * kept * r * (1 - r)
    given, held = torch.cat((of_r, of_z, of_n), 1), torch.cat((of_r, of_z, of_n * r), 1)
    biases = (given.sum(0), held.sum(0)) if has_bias else (None, None)
    return tuple(None if value is None else value.to(grad_hy.dtype) for value in (given, held, grad * z, *biases))


def _wide(value: Tensor) -> Tensor:
    return value.to(torch.float32) if value.dtype in (torch.bfloat16, torch.float16) else value


# PyTorch knows the shapes of the LSTM's cell only.
SHAPES = torch.library.Library("aten", "IMPL", "Meta")
SHAPES.impl("_thnn_fused_gru_cell", gru)
SHAPES.impl("_thnn_fused_gru_cell_backward", gru_backward)
