"""The two fused operators of `torch.nn`'s attention layers in evaluation mode, in terms of operators that lower."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def attention_decompositions() -> dict[Any, Callable[..., Any]]:
    """By operator."""
    import torch

    aten = torch.ops.aten
    return {
        aten._native_multi_head_attention.default: multi_head_attention,
        aten._transformer_encoder_layer_fwd.default: encoder_layer,
    }


def multi_head_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    mask: torch.Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`query`, `key`, `value`: (batch, length, embed_dim). The second result is empty unless weights are wanted."""
    import torch

    linear = torch.nn.functional.linear
    weights, biases = qkv_weight.chunk(3), qkv_bias.chunk(3)
    split = [
        linear(tensor, weight, bias).unflatten(-1, (num_head, embed_dim // num_head)).transpose(1, 2)
        for tensor, weight, bias in zip((query, key, value), weights, biases, strict=True)
    ]
    scores = split[0] @ split[1].transpose(-2, -1) * (embed_dim // num_head) ** -0.5
    if mask is not None:
        scores = scores.masked_fill(_broadcast(mask.to(torch.bool), mask_type), float("-inf"))
    shares = torch.softmax(scores, -1)
    mixed = (shares @ split[2]).transpose(1, 2).flatten(2)
    told = query.new_zeros([0]) if not need_weights else shares.mean(1) if average_attn_weights else shares
    return linear(mixed, proj_weight, proj_bias), told


def _broadcast(mask: torch.Tensor, kind: int | None) -> torch.Tensor:
    """To (batch, head, length, length): 0 is a mask of positions, 1 of padded keys, 2 of both."""
    if kind == 0:
        return mask[None, None]
    return mask[:, None, None] if kind == 1 else mask


def encoder_layer(
    src: torch.Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: torch.Tensor,
    norm_bias_1: torch.Tensor,
    norm_weight_2: torch.Tensor,
    norm_bias_2: torch.Tensor,
    ffn_weight_1: torch.Tensor,
    ffn_bias_1: torch.Tensor,
    ffn_weight_2: torch.Tensor,
    ffn_bias_2: torch.Tensor,
    mask: torch.Tensor | None = None,
    mask_type: int | None = None,
) -> torch.Tensor:
    """`src`: (batch, length, embed_dim), dense."""
    import torch

    functional = torch.nn.functional
    activation = functional.gelu if use_gelu else torch.relu

    def attend(x: torch.Tensor) -> torch.Tensor:
        projections = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return multi_head_attention(x, x, x, embed_dim, num_heads, *projections, mask, False, True, mask_type)[0]

    def feed(x: torch.Tensor) -> torch.Tensor:
        hidden = activation(functional.linear(x, ffn_weight_1, ffn_bias_1))
        return functional.linear(hidden, ffn_weight_2, ffn_bias_2)

    def norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return functional.layer_norm(x, (embed_dim,), weight, bias, eps)

    if norm_first:
        x = src + attend(norm(src, norm_weight_1, norm_bias_1))
        return x + feed(norm(x, norm_weight_2, norm_bias_2))
    x = norm(src + attend(src), norm_weight_1, norm_bias_1)
    return norm(x + feed(x), norm_weight_2, norm_bias_2)
