"""Decompositions that PyTorch has and torch-mlir's own table leaves out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# Names of operators with all their overloads.
_NAMES = (
    "_batch_norm_with_update",
    "_batch_norm_no_update",
    "_batch_norm_with_update_functional",
    "_chunk_cat",
    "as_strided_copy",
    "expand_copy",
    "isneginf",
    "isposinf",
    "narrow_copy",
    "new_empty_strided",
    "norm",
    "permute_copy",
    "roll",
    "special_entr",
    "special_log_ndtr",
    "squeeze_copy",
    "t_copy",
    "transpose_copy",
    "unbind_copy",
    "unfold_backward",
    "unfold_copy",
    "unsqueeze_copy",
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_nearest2d_backward",
    "upsample_nearest3d",
    "view_copy",
)


def table() -> dict[Any, Callable[..., Any]]:
    from torch._decomp import decomposition_table

    found: dict[Any, Callable[..., Any]] = {}
    for name in _NAMES:
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads():
            operator = getattr(packet, overload)
            if operator in decomposition_table:
                found[operator] = decomposition_table[operator]
    return found
