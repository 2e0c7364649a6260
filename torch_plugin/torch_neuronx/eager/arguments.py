"""The arguments of a call as plain data: what its plan depends on, and nothing else.

The same data are the request to the process that lowers, and, hashed, the name of the plan in the cache. So numbers
that a plan takes with each call have a type here and no value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torch_neuronx.eager.numbers import runtime_numbers
from torch_neuronx.eager.policy import UnsupportedError

_TAKE_INDICES_FROM_ANYWHERE = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}
_NUMBERS = {"bool": True, "int": 2, "float": 2.0, "complex": 2.0 + 2.0j}


@dataclass(frozen=True)
class TensorArgument:
    """A tensor on the device."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.sizes)

    @property
    def contiguous(self) -> bool:
        """Whether it lies row-major, as PyTorch has it."""
        step = 1
        for size, stride in zip(reversed(self.sizes), reversed(self.strides), strict=True):
            if size != 1 and stride != step:
                return self.elements == 0
            step *= size
        return True


@dataclass(frozen=True)
class NumberArgument:
    """A tensor on the host without dimensions: a number with a dtype."""

    dtype: torch.dtype


@dataclass(frozen=True)
class VaryingNumber:
    """A number of Python's, `bool`, `int`, `float` or `complex`, that no plan depends on."""

    type: str

    @property
    def example(self) -> complex:
        return _NUMBERS[self.type]


Argument = Any
"""One of these, None, a bool, a number, a text, a `torch.device`, `dtype`, `layout` or `memory_format`, or a
list of such."""


class MixedDevicesError(RuntimeError):
    """PyTorch's own words for it."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(
            f"Expected all tensors to be on the same device, but found at least two devices, neuron and {device}!"
        )


def described(op: torch._ops.OpOverload, arguments: Sequence[Any]) -> list[Argument]:
    """The arguments of a call, by the positions of the schema. Raises UnsupportedError and MixedDevicesError."""
    name = op._schema.name
    runtime = runtime_numbers(name, op._schema.overload_name)
    made: list[Argument] = []
    for value, entry in zip(arguments, op._schema.arguments, strict=True):
        declared = str(entry.type)
        if isinstance(value, (list, tuple)):
            made.append([_described(name, part, declared, False) for part in value])
        else:
            made.append(_described(name, value, declared, entry.name in runtime))
    return made


def _described(name: str, value: Any, declared: str, runtime: bool) -> Argument:
    if isinstance(value, torch.Tensor):
        return _tensor(name, value)
    if isinstance(value, (bool, int, float, complex)) and ("Tensor" in declared or _varies(value, runtime)):
        # A number the user wrote has no dtype of its own, and 32 bits will do.
        return VaryingNumber(type(value).__name__)
    if isinstance(value, torch.Generator):
        return None
    if isinstance(value, torch.device) and value.type == "neuron":
        return torch.device("cpu")
    if value is None or isinstance(value, (bool, int, float, complex, str, *_NAMED)):
        return value
    raise UnsupportedError(f"it has an argument of type {type(value).__name__}")


def _tensor(name: str, value: torch.Tensor) -> TensorArgument | NumberArgument:
    if value.layout is not torch.strided:
        raise UnsupportedError(f"it has a {value.layout} argument")
    if value.device.type == "neuron":
        return TensorArgument(value.dtype, tuple(value.shape), tuple(value.stride()))
    if value.device.type == "cpu" and value.dim() == 0:
        if value.dtype is torch.complex32:
            raise UnsupportedError("it has a number of torch.complex32 for an argument")
        return NumberArgument(value.dtype)
    if name in _TAKE_INDICES_FROM_ANYWHERE:
        raise UnsupportedError("its indices are on the host")
    raise MixedDevicesError(value.device)


def _varies(value: Any, runtime: bool) -> bool:
    """As signature.cpp has it: zero and one, truth values and complex numbers are part of the signature."""
    return runtime and type(value) in (int, float) and value not in (0, 1)


_NAMED = (torch.device, torch.dtype, torch.layout, torch.memory_format)


def to_json(arguments: Sequence[Argument]) -> list[Any]:
    """The arguments in JSON's types."""
    return [_to_json(value) for value in arguments]


def _to_json(value: Argument) -> Any:
    if isinstance(value, list):
        return [_to_json(part) for part in value]
    if isinstance(value, TensorArgument):
        return {"tensor": dtype_to_text(value.dtype), "sizes": list(value.sizes), "strides": list(value.strides)}
    if isinstance(value, NumberArgument):
        return {"number": dtype_to_text(value.dtype)}
    if isinstance(value, VaryingNumber):
        return {"varies": value.type}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, _NAMED):
        return {"torch": str(value).removeprefix("torch.")}
    return value


def from_json(values: Sequence[Any]) -> list[Argument]:
    """The inverse of `to_json`."""
    return [_from_json(value) for value in values]


def _from_json(value: Any) -> Argument:
    if isinstance(value, list):
        return [_from_json(part) for part in value]
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return TensorArgument(dtype_from_text(value["tensor"]), tuple(value["sizes"]), tuple(value["strides"]))
    if "number" in value:
        return NumberArgument(dtype_from_text(value["number"]))
    if "varies" in value:
        return VaryingNumber(value["varies"])
    if "device" in value:
        return torch.device(value["device"])
    if "complex" in value:
        return complex(*value["complex"])
    return getattr(torch, value["torch"])


def dtype_to_text(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def dtype_from_text(name: str) -> torch.dtype:
    """Raises ValueError for what is no dtype of PyTorch."""
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"{name[:40]!r} is no dtype")
    return found
