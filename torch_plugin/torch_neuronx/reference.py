"""What CPU PyTorch gives for the same call, and how far a result is from it."""

from __future__ import annotations

import copy
import math
from typing import TYPE_CHECKING, Any

from torch_neuronx.errors import InputMismatchError

if TYPE_CHECKING:
    from torch_neuronx.factory import Example


def reference_result(example: Example) -> Any:
    """The example's call on the CPU, on copies, so that a call that changes buffers or arguments leaves no trace."""
    import torch

    module, args, kwargs = copy.deepcopy((example.module, example.args, example.kwargs))
    with torch.no_grad():
        return module(*args, **kwargs)


def largest_difference(result: Any, expected: Any) -> float:
    """The largest absolute difference over all elements of all tensors; NaN in one alone counts as infinite.

    Raises InputMismatchError when the two are not nested alike.
    """
    from torch.utils._pytree import tree_flatten

    ours, structure = tree_flatten(result)
    theirs, wanted = tree_flatten(expected)
    if structure != wanted:
        raise InputMismatchError(f"results are nested differently: {structure} against {wanted}")
    return max((_difference(a, b) for a, b in zip(ours, theirs, strict=True)), default=0.0)


def _difference(ours: Any, theirs: Any) -> float:
    import torch

    if not isinstance(ours, torch.Tensor) or not isinstance(theirs, torch.Tensor):
        return 0.0 if ours == theirs else math.inf
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return math.inf
    if not ours.numel():
        return 0.0
    wide = torch.complex128 if ours.is_complex() else torch.float64
    a, b = ours.detach().to(wide), theirs.detach().to(wide)
    # Equal infinities and two NaNs agree; their difference would say otherwise.
    same = (a == b) | (a.isnan() & b.isnan())
    distance = torch.where(same, 0.0, (a - b).abs())
    return float(distance.nan_to_num(nan=math.inf).max())
