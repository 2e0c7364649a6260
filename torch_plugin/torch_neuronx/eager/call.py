"""One call of an operator: which tensors and numbers go in, and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torch_neuronx.eager.layout import Layout, layout_of
from torch_neuronx.eager.numbers import runtime_numbers
from torch_neuronx.eager.operators import stand_in_for
from torch_neuronx.eager.plan import Immediate, Place, TensorInput
from torch_neuronx.eager.policy import UnsupportedError

_TAKE_INDICES_FROM_ANYWHERE = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}
NUMBER_DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float32, complex: torch.complex64}
_DEMOTED = {torch.float64: torch.float32, torch.complex128: torch.complex64}


@dataclass(frozen=True)
class Operand:
    """A tensor on the device."""

    place: Place
    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def layout(self) -> Layout:
        return layout_of(self.sizes, self.strides)


class MixedDevicesError(RuntimeError):
    """PyTorch's own words for it."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(
            f"Expected all tensors to be on the same device, but found at least two devices, neuron and {device}!"
        )


class Call:
    """The arguments of a call, taken apart. Positions are those of the schema, keyword arguments included."""

    def __init__(self, op: torch._ops.OpOverload, arguments: Sequence[Any]) -> None:
        self.op = op
        self.arguments = [_on_cpu(value) for value in arguments]
        self.schema = op._schema.arguments
        self.stand_in = stand_in_for(op._schema.name, self.arguments)
        self.written = [
            number for number, entry in enumerate((self.stand_in or op)._schema.arguments) if entry.is_write
        ]
        self.operands: list[Operand] = []
        self.immediates: list[Immediate] = []
        runtime = runtime_numbers(op._schema.name, op._schema.overload_name)
        for number, (value, entry) in enumerate(zip(self.arguments, self.schema, strict=True)):
            if isinstance(value, (list, tuple)):
                for item, part in enumerate(value):
                    self._take(part, (number, item), declared=str(entry.type))
            else:
                self._take(value, (number, -1), number_too=entry.name in runtime, declared=str(entry.type))

    def _take(self, value: Any, place: Place, *, number_too: bool = False, declared: str = "") -> None:
        if isinstance(value, torch.Tensor):
            if value.layout is not torch.strided:
                raise UnsupportedError(f"it has a {value.layout} argument")
            if value.device.type == "neuron":
                self.operands.append(Operand(place, value.dtype, tuple(value.shape), tuple(value.stride())))
            elif value.device.type == "cpu" and value.dim() == 0:
                self._take_number(place, value.dtype)
            elif self.op._schema.name in _TAKE_INDICES_FROM_ANYWHERE:
                raise UnsupportedError("its indices are on the host")
            else:
                raise MixedDevicesError(value.device)
        elif isinstance(value, (bool, int, float, complex)) and ("Tensor" in declared or _varies(value, number_too)):
            # A number the user wrote has no dtype of its own, and 32 bits will do.
            self._take_number(place, NUMBER_DTYPES[type(value)])

    def _take_number(self, place: Place, dtype: torch.dtype) -> None:
        if dtype in (torch.complex64, torch.complex128):
            dtype = torch.complex64  # two float32 numbers in the word that a command has room for
        elif dtype.is_complex:
            raise UnsupportedError(f"it has a number of {dtype} for an argument")
        self.immediates.append(Immediate("argument", place, dtype))

    @property
    def complex(self) -> bool:
        """Whether complex numbers go in."""
        values = [*self.operands, *self.immediates]
        return any(value.dtype.is_complex for value in values) or any(isinstance(v, complex) for v in self.arguments)

    @property
    def inputs(self) -> tuple[TensorInput, ...]:
        return tuple(TensorInput(operand.place, operand.layout.as_it_lies) for operand in self.operands)

    @property
    def demotes(self) -> bool:
        """Whether 64-bit numbers become 32-bit ones inside the graph, as on the chip: with any tensor that has
        dimensions."""
        return any(operand.sizes for operand in self.operands) or not self.operands

    def with_tensors(self, make: Callable[[Operand], Any], number: Callable[[Immediate], Any]) -> list[Any]:
        """The arguments with other tensors, and other numbers, in the places of these."""
        filled = [list(value) if isinstance(value, (list, tuple)) else value for value in self.arguments]
        for operand in self.operands:
            _put(filled, operand.place, make(operand))
        for immediate in self.immediates:
            _put(filled, immediate.place, number(immediate))
        return filled

    def invoke(self, arguments: Sequence[Any], function: Callable[..., Any] | None = None) -> Any:
        """Calls the operator, or another function with its parameters."""
        positional = [v for v, entry in zip(arguments, self.schema, strict=True) if not entry.kwarg_only]
        named = {e.name: v for v, e in zip(arguments, self.schema, strict=True) if e.kwarg_only}
        return (function or self.stand_in or self.op)(*positional, **named)


def _varies(value: Any, runtime: bool) -> bool:
    """As signature.cpp has it: zero and one, truth values and complex numbers are part of the signature."""
    return runtime and type(value) in (int, float) and value not in (0, 1)


def demoted(dtype: torch.dtype) -> torch.dtype:
    """The dtype that the device computes in."""
    return _DEMOTED.get(dtype, dtype)


def _put(arguments: list[Any], place: Place, value: Any) -> None:
    number, item = place
    if item < 0:
        arguments[number] = value
    else:
        arguments[number][item] = value


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == "neuron":
        return torch.device("cpu")
    if isinstance(value, torch.Generator):
        return None
    return value
