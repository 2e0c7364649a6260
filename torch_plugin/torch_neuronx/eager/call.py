"""One call of an operator: which tensors and numbers go in, and what comes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torch_neuronx.eager.arguments import Argument, NumberArgument, TensorArgument, VaryingNumber
from torch_neuronx.eager.layout import Layout, layout_of
from torch_neuronx.eager.operators import stand_in_for
from torch_neuronx.eager.plan import Immediate, Place, TensorInput

NUMBER_DTYPES = {"bool": torch.bool, "int": torch.int64, "float": torch.float32, "complex": torch.complex64}
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


class Call:
    """The arguments of a call, taken apart. Positions are those of the schema, keyword arguments included."""

    def __init__(self, op: torch._ops.OpOverload, arguments: Sequence[Argument]) -> None:
        self.op = op
        self.arguments = list(arguments)
        self.schema = op._schema.arguments
        self.stand_in = stand_in_for(op._schema.name, self.arguments)
        self.written = [
            number for number, entry in enumerate((self.stand_in or op)._schema.arguments) if entry.is_write
        ]
        self.operands: list[Operand] = []
        self.immediates: list[Immediate] = []
        for number, value in enumerate(self.arguments):
            for item, part in enumerate(value) if isinstance(value, list) else ((-1, value),):
                self._take(part, (number, item))

    def _take(self, value: Argument, place: Place) -> None:
        if isinstance(value, TensorArgument):
            self.operands.append(Operand(place, value.dtype, value.sizes, value.strides))
        elif isinstance(value, NumberArgument):
            self._take_number(place, value.dtype)
        elif isinstance(value, VaryingNumber):
            self._take_number(place, NUMBER_DTYPES[value.type])

    def _take_number(self, place: Place, dtype: torch.dtype) -> None:
        # Of complex numbers a command has room for two float32.
        self.immediates.append(Immediate("argument", place, demoted(dtype) if dtype.is_complex else dtype))

    def example(self, immediate: Immediate) -> Any:
        """A number as the operator takes it, of any value."""
        number, item = immediate.place
        value = self.arguments[number] if item < 0 else self.arguments[number][item]
        return torch.ones((), dtype=value.dtype) if isinstance(value, NumberArgument) else value.example

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
        filled = [list(value) if isinstance(value, list) else value for value in self.arguments]
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


def demoted(dtype: torch.dtype) -> torch.dtype:
    """The dtype that the device computes in."""
    return _DEMOTED.get(dtype, dtype)


def _put(arguments: list[Any], place: Place, value: Any) -> None:
    number, item = place
    if item < 0:
        arguments[number] = value
    else:
        arguments[number][item] = value
