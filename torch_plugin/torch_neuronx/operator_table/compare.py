"""Whether the device's results are right, given those of the CPU."""

from __future__ import annotations

from typing import Any

import torch

from torch_neuronx.operator_table.samples import leaves

# Ten times what torch.testing allows by default, and less than PyTorch's own test of an accelerator against the CPU
# (1e-3): each side has its own approximations and its own order of summation.
_TOLERANCES = {torch.float32: (1.3e-5, 1e-5), torch.bfloat16: (1.6e-2, 1e-3), torch.float16: (1e-2, 1e-3)}
_LESS_EXACT = {torch.float64: torch.float32, torch.complex128: torch.float32, torch.complex64: torch.float32}
_ENOUGH = 50  # numbers from which a mean tells something
_NO_VALUES = ("empty", "new_empty")


def unset(name: str) -> bool:
    """Whether the operator gives memory as it finds it."""
    return name.startswith(_NO_VALUES)


def beyond_32_bits(*values: Any) -> bool:
    """Whether a tensor holds integers that 32 bits do not."""
    limits = torch.iinfo(torch.int32)
    for leaf in leaves(list(values)):
        if isinstance(leaf, torch.Tensor) and leaf.dtype in (torch.int64, torch.uint64, torch.uint32) and leaf.numel():
            bottom, top = leaf.to(torch.int64).aminmax()
            if int(bottom) < limits.min or int(top) > limits.max:
                return True
    return False


def differ(one: Any, other: Any) -> bool:
    """Whether two runs gave different numbers."""
    for left, right in zip(leaves(one), leaves(other), strict=False):
        if not isinstance(left, torch.Tensor) or not left.numel() or left.dtype is torch.complex32:
            continue
        if left.shape != right.shape or not torch.allclose(left, right, rtol=0.0, atol=0.0, equal_nan=True):
            return True
    return False


def difference(found: Any, wanted: Any, *, exact: Any = None, values: str = "all") -> str:
    """What is wrong with `found`, or nothing.

    `exact`: the same computed in float64; where float32 numbers leave the tolerance, the device may be off by up to
    four times what the CPU is. `values`: "all", "statistics" for random numbers, "none" for unset memory.
    """
    ours, theirs = leaves(found), leaves(wanted)
    if len(ours) != len(theirs):
        return f"{len(ours)} results instead of {len(theirs)}"
    better = leaves(exact) if exact is not None else [None] * len(theirs)
    for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        told = _one(one, other, better[number] if len(better) == len(theirs) else None, values)
        if told:
            return f"result {number}: {told}"
    return ""


def _one(one: Any, other: Any, exact: Any, values: str) -> str:
    if not isinstance(other, torch.Tensor):
        same = one == other or (one != one and other != other)
        if isinstance(other, float) and isinstance(one, float):
            same = same or abs(one - other) <= 1e-5 + 1.3e-5 * abs(other)
        return "" if same or values != "all" or isinstance(other, torch.device) else f"{one!r} instead of {other!r}"
    if not isinstance(one, torch.Tensor):
        return f"a {type(one).__name__} instead of a tensor"
    one, other = one.detach().cpu(), other.detach()
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return f"{one.dtype} {tuple(one.shape)} instead of {other.dtype} {tuple(other.shape)}"
    if values == "none":
        return ""
    if values == "statistics":
        return _statistics(one, other)
    return _values(one, other, exact)


def _values(one: torch.Tensor, other: torch.Tensor, exact: Any) -> str:
    relative, absolute = _TOLERANCES.get(_LESS_EXACT.get(other.dtype, other.dtype), (0.0, 0.0))
    one, other = one.resolve_conj().resolve_neg(), other.resolve_conj().resolve_neg()
    try:
        torch.testing.assert_close(one, other, rtol=relative, atol=absolute, equal_nan=True, check_stride=False)
    except AssertionError as error:
        if _as_good(one, other, exact, relative):
            return ""
        lines = [line for line in str(error).splitlines() if line][1:4]
        return "; ".join(lines)
    return ""


def _as_good(one: torch.Tensor, other: torch.Tensor, exact: Any, relative: float) -> bool:
    """Whether the device is about as near to the float64 result as the CPU is."""
    if not isinstance(exact, torch.Tensor) or exact.shape != other.shape or not exact.is_floating_point():
        return False
    if not other.is_floating_point() or not torch.equal(one.isfinite(), other.isfinite() | exact.isfinite()):
        return False
    failed = exact.isfinite() & ~other.isfinite()  # the CPU overflowed on the way
    if not torch.allclose(one[failed].double(), exact[failed], rtol=2 * relative, atol=1e-3):
        return False
    finite = other.isfinite() & exact.isfinite()
    if not bool(finite.any()):
        return True
    ours = (one.double() - exact).abs()[finite]
    theirs = (other.double() - exact).abs()[finite]
    scale = exact.abs()[finite]
    return bool((ours <= 4 * theirs.max() + relative * scale + 1e-6).all()) if ours.numel() else True


def _statistics(one: torch.Tensor, other: torch.Tensor) -> str:
    if one.numel() < _ENOUGH or one.is_complex():
        return ""
    ours, theirs = one.double(), other.double()
    if not bool(ours.isfinite().all()) and bool(theirs.isfinite().all()):
        return "random numbers that are not finite"
    if not bool(theirs.isfinite().all()):
        return ""
    # Without the tails: some distributions have no mean.
    low, high = (float(theirs.quantile(share)) for share in (0.05, 0.95))
    ours, theirs = ours.clamp(low, high), theirs.clamp(low, high)
    error = abs(float(ours.mean() - theirs.mean()))
    allowed = 6 * (float(theirs.std()) + 1e-9) * (2 / one.numel()) ** 0.5
    if error > allowed:
        return f"a mean of {float(ours.mean()):.3g} instead of {float(theirs.mean()):.3g}, tails cut off"
    return ""
