"""Complex numbers as pairs of real ones: in memory a tensor with one more dimension of two, in a graph two tensors.

PyTorch's `ComplexTensor` says what operators on such pairs are. StableHLO has complex types, but torch-mlir hands few
operators on to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from torch_neuronx.eager.policy import UnsupportedError

REAL = {torch.complex128: torch.float64, torch.complex64: torch.float32, torch.complex32: torch.float16}


def pair(real: torch.Tensor, imaginary: torch.Tensor) -> torch.Tensor:
    """One complex tensor. Halves travel in float32, since PyTorch computes so."""
    from torch._subclasses.complex_tensor import ComplexTensor

    made: torch.Tensor = ComplexTensor(real, imaginary)
    return made


def parts(value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Real and imaginary part of any tensor."""
    from torch._subclasses.complex_tensor import ComplexTensor

    if isinstance(value, ComplexTensor):
        return value.re, value.im
    if value.is_complex():
        raise UnsupportedError("its complex result is not made of pairs")
    return value, torch.zeros_like(value)


def functional_of(op: torch._ops.OpOverload) -> torch._ops.OpOverload:
    """The operator that gives what `op` would overwrite. Raises UnsupportedError where there is none."""
    outputs = {entry.name for entry in op._schema.arguments if entry.is_out}
    names = [entry.name for entry in op._schema.arguments if entry.name not in outputs]
    if not any(entry.is_write for entry in op._schema.arguments):
        return op
    for candidate in _overloads(op._schema.name.removeprefix("aten::").removesuffix("_")):
        arguments = candidate._schema.arguments
        same = [entry.name for entry in arguments] == names and not any(entry.is_write for entry in arguments)
        if same and [str(e.type) for e in arguments] == [
            str(e.type) for e in op._schema.arguments if e.name not in outputs
        ]:
            return candidate
    raise UnsupportedError("it overwrites complex numbers")


def _overloads(name: str) -> Iterator[torch._ops.OpOverload]:
    packet = getattr(torch.ops.aten, name, None)
    for overload in packet.overloads() if packet is not None else ():
        yield getattr(packet, overload)


_ELEMENTWISE = ("add", "sub", "mul", "pow", "rsub", "eq", "ne", "addcmul", "addcdiv", "lerp")


def all_pairs(op: torch._ops.OpOverload, arguments: list[Any]) -> list[Any]:
    """The arguments with real tensors as pairs too, since PyTorch's rules would make complex tensors of them. Integers
    are indices in other than elementwise operators."""
    elementwise = op._schema.name.removeprefix("aten::").removesuffix("_") in _ELEMENTWISE

    def change(value: Any) -> Any:
        if isinstance(value, list):
            return [change(part) for part in value]
        if isinstance(value, torch.Tensor) and not value.is_complex():
            if elementwise and not value.is_floating_point():
                value = value.to(torch.float32)
            if value.is_floating_point():
                value = value.to(torch.float32) if value.dtype is torch.bfloat16 else value
                return pair(value, torch.zeros_like(value))
        return value

    return [change(value) for value in arguments]


def rule_for(name: str) -> Callable[..., Any] | None:
    """What to call in place of the operator: it makes complex numbers of real ones, or PyTorch's own rule is missing or
    loses digits."""
    from torch_neuronx.eager import fourier

    return {**_RULES, **fourier.RULES}.get(name.removeprefix("aten::").removesuffix("_"))


def _complex(real: torch.Tensor, imag: torch.Tensor) -> torch.Tensor:
    dtype = torch.promote_types(real.dtype, imag.dtype)
    real, imag = torch.broadcast_tensors(real.to(dtype), imag.to(dtype))
    return pair(real, imag)


def _polar(abs: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:  # noqa: A002
    return _complex(abs * torch.cos(angle), abs * torch.sin(angle))


def _to_copy(self: torch.Tensor, *, dtype: torch.dtype | None = None, **_: Any) -> torch.Tensor:
    real, imaginary = parts(self)
    if dtype is None:
        return pair(real.clone(), imaginary.clone())
    if dtype is torch.bool:
        return (real != 0) | (imaginary != 0)
    if not dtype.is_complex:
        return real.to(dtype)
    kind = REAL[dtype]
    return pair(real.to(kind), imaginary.to(kind))


def _cat(tensors: list[torch.Tensor], dim: int = 0) -> torch.Tensor:
    both = [parts(tensor) for tensor in tensors]
    return pair(torch.cat([real for real, _ in both], dim), torch.cat([imaginary for _, imaginary in both], dim))


def _stack(tensors: list[torch.Tensor], dim: int = 0) -> torch.Tensor:
    both = [parts(tensor) for tensor in tensors]
    return pair(torch.stack([real for real, _ in both], dim), torch.stack([imaginary for _, imaginary in both], dim))


def _each(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The same for both parts."""

    def mapped(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        real, imaginary = parts(self)
        return pair(function(real, *args, **kwargs), function(imaginary, *args, **kwargs))

    return mapped


def _cumsum(self: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    real, imaginary = parts(self)
    return pair(real.cumsum(dim), imaginary.cumsum(dim))


def _conj_physical(self: torch.Tensor) -> torch.Tensor:
    real, imaginary = parts(self)
    return pair(real.clone(), -imaginary)


def _angle(self: torch.Tensor) -> torch.Tensor:
    real, imaginary = parts(self)
    return torch.atan2(imaginary, real)


def _prod(self: torch.Tensor, dim: int | None = None, keepdim: bool = False, **_: Any) -> torch.Tensor:
    from torch_neuronx.eager.decompositions.scans import scan

    real, imaginary = parts(self if dim is not None else self.reshape(-1))
    axis = 0 if dim is None else dim

    def join(one: Any, two: Any) -> Any:
        return one[0] * two[0] - one[1] * two[1], one[0] * two[1] + one[1] * two[0]

    last = [value.narrow(axis, value.shape[axis] - 1, 1) for value in scan(join, (real, imaginary), axis)]
    return pair(*(value if keepdim else value.squeeze(axis) for value in last))


def _div(self: torch.Tensor, other: Any, *, rounding_mode: str | None = None) -> torch.Tensor:
    """By the larger part of the divisor, so that squares neither overflow nor vanish (R. Smith, 1962)."""
    if rounding_mode is not None:
        raise UnsupportedError("complex numbers are not rounded")
    a, b = parts(self)
    if not isinstance(other, torch.Tensor):
        other = pair(torch.full_like(a, complex(other).real), torch.full_like(a, complex(other).imag))
    if not other.is_complex():
        return pair(a / other, b / other)
    c, d = parts(other)
    wide = c.abs() >= d.abs()
    large, small = torch.where(wide, c, d), torch.where(wide, d, c)
    ratio = torch.where(large == 0, torch.zeros_like(small), small / large)
    scale = large + small * ratio
    real = torch.where(wide, a + b * ratio, a * ratio + b) / scale
    imaginary = torch.where(wide, b - a * ratio, b * ratio - a) / scale
    return pair(real, imaginary)


def _pow(self: Any, exponent: Any) -> torch.Tensor:
    if isinstance(exponent, (int, float)) and float(exponent).is_integer() and 0 <= exponent <= 16:
        real, imaginary = parts(self)
        result = torch.ones_like(real), torch.zeros_like(real)
        for _ in range(int(exponent)):
            result = (
                result[0] * real - result[1] * imaginary,
                result[0] * imaginary + result[1] * real,
            )
        return pair(*result)
    like = parts(self if isinstance(self, torch.Tensor) else exponent)[0]
    base, power = (
        pair(*parts(value))
        if isinstance(value, torch.Tensor)
        else pair(torch.full_like(like, complex(value).real), torch.full_like(like, complex(value).imag))
        for value in (self, exponent)
    )
    return torch.exp(power * torch.log(base))


_RULES: dict[str, Callable[..., Any]] = {
    "_to_copy": _to_copy,
    "angle": _angle,
    "cat": _cat,
    "complex": _complex,
    "conj_physical": _conj_physical,
    "cumsum": _cumsum,
    "div": _div,
    "polar": _polar,
    "pow": _pow,
    "prod": _prod,
    "stack": _stack,
    **{
        name: _each(getattr(torch.ops.aten, name))
        for name in ("tril", "triu", "roll", "flip", "constant_pad_nd", "diagonal_copy", "unfold_backward", "trace")
    },
}
