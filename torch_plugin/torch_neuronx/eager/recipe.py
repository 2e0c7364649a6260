"""What lowering finds out about a signature: all of a plan but the loaded model. Plain data that a cache keeps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cache_server.fields import Fields, encode_object, parse_object
from torch_neuronx.eager.arguments import (
    Argument,
    NumberArgument,
    TensorArgument,
    VaryingNumber,
    dtype_from_text,
    dtype_to_text,
)
from torch_neuronx.eager.layout import layout_of
from torch_neuronx.eager.plan import NOWHERE, Immediate, Output, Place, TensorInput

if TYPE_CHECKING:
    from neuron_runtime.neff import NeffManifest

SCHEMA = 1
_HEAD_LIMIT = 4 << 20  # bytes; real ones have about 1,000
_MANY = 1 << 16
_LARGE = 1 << 48


@dataclass(frozen=True)
class Recipe:
    """`stablehlo` is empty where nothing has to be computed. The rest is as in Plan."""

    stablehlo: bytes = field(repr=False)
    random_numbers: int
    inputs: tuple[TensorInput, ...]
    immediates: tuple[Immediate, ...]
    outputs: tuple[Output, ...]
    results: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class OnHost:
    """The operator has no form that compiles for this signature, and why. `lasting`: anywhere, at any time."""

    reason: str
    lasting: bool = True


def encode(recipe: Recipe | OnHost) -> bytes:
    """A line of JSON, then the StableHLO. Equal recipes give equal bytes."""
    if isinstance(recipe, OnHost):
        return encode_object({"schema": SCHEMA, "kind": "host", "reason": recipe.reason[:_MANY]})
    head = {
        "schema": SCHEMA,
        "kind": "graph",
        "random_numbers": recipe.random_numbers,
        "inputs": [[*entry.place, entry.as_it_lies] for entry in recipe.inputs],
        "immediates": [[entry.source, *entry.place, dtype_to_text(entry.dtype)] for entry in recipe.immediates],
        "outputs": [
            [*entry.target, list(entry.sizes), list(entry.strides), dtype_to_text(entry.dtype), entry.direct]
            for entry in recipe.outputs
        ],
        "results": [list(entry) for entry in recipe.results],
    }
    return encode_object(head) + recipe.stablehlo


def decode(data: bytes, arguments: Sequence[Argument], results: int) -> Recipe | OnHost:
    """The recipe for a call with these arguments and that many results.

    Raises ValueError for anything that `encode` does not write or that does not fit the call: C++ trusts a plan.
    """
    line, _, stablehlo = data.partition(b"\n")
    head = parse_object(line, limit=_HEAD_LIMIT)
    if head.integer("schema", low=0, high=1 << 30) != SCHEMA:
        raise ValueError("another version wrote it")
    kind = head.text("kind", limit=20)
    if kind == "host":
        return OnHost(head.text("reason", limit=_MANY))
    if kind != "graph":
        raise ValueError(f"kind is neither graph nor host: {kind!r}")
    call = _Shape(arguments)
    outputs = tuple(call.output(*row) for row in _rows(head, "outputs", 6))
    recipe = Recipe(
        stablehlo,
        head.integer("random_numbers", low=0, high=_LARGE),
        tuple(call.input(*row) for row in _rows(head, "inputs", 3)),
        tuple(call.immediate(*row) for row in _rows(head, "immediates", 4)),
        outputs,
        tuple(call.result(outputs, *row) for row in _rows(head, "results", 3)),
    )
    if len(recipe.results) != results:
        raise ValueError(f"it gives {len(recipe.results)} results, and the operator {results}")
    if not stablehlo and (recipe.inputs or any(math.prod(output.sizes) for output in outputs)):
        raise ValueError("it has no graph")
    return recipe


def fits(recipe: Recipe, arguments: Sequence[Argument], manifest: NeffManifest) -> bool:
    """Whether the NEFF reads and writes as many bytes as the recipe hands it."""
    reads = [_bytes_read(_at(arguments, entry.place), entry.as_it_lies) for entry in recipe.inputs]
    reads += [entry.dtype.itemsize for entry in recipe.immediates]
    writes = [math.prod(entry.sizes) * entry.dtype.itemsize for entry in recipe.outputs]
    return reads == [spec.nbytes for spec in manifest.inputs] and writes == [spec.nbytes for spec in manifest.outputs]


def _bytes_read(tensor: TensorArgument, as_it_lies: bool) -> int:
    lies = layout_of(tensor.sizes, tensor.strides)
    count = math.prod(lies.base) if as_it_lies and lies.as_it_lies else tensor.elements
    return count * tensor.dtype.itemsize


class _Shape:
    """Reads the entries of a recipe; ValueError for one that names what the call does not have."""

    def __init__(self, arguments: Sequence[Argument]) -> None:
        self._arguments = arguments

    def input(self, number: Any, item: Any, as_it_lies: Any) -> TensorInput:
        place, _ = self._tensor(number, item)
        return TensorInput(place, _flag(as_it_lies))

    def immediate(self, source: Any, number: Any, item: Any, dtype: Any) -> Immediate:
        place = _integer(number, -1), _integer(item, -1)
        if source == "argument":
            if not isinstance(_at(self._arguments, place), NumberArgument | VaryingNumber):
                raise ValueError(f"argument {place} is no number that varies")
        elif source not in ("seed", "offset") or place != NOWHERE:
            raise ValueError(f"no such source: {source!r:.40}")
        return Immediate(source, place, dtype_from_text(_text(dtype)))

    def output(self, number: Any, item: Any, sizes: Any, strides: Any, dtype: Any, direct: Any) -> Output:
        shape, steps = _integers(sizes), _integers(strides)
        if len(shape) != len(steps) or math.prod(shape) > _LARGE:
            raise ValueError("an output has no possible size")
        made = Output(NOWHERE, shape, steps, dtype_from_text(_text(dtype)), _flag(direct))
        if (number, item) == NOWHERE:
            if _extent(shape, steps) < math.prod(shape):
                raise ValueError("an output overlaps itself")
            return made
        place, target = self._tensor(number, item)
        if made.direct and target.sizes == shape and _extent(shape, target.strides) < target.elements:
            raise ValueError("what it overwrites overlaps itself")
        return Output(place, shape, steps, made.dtype, made.direct)

    def result(self, outputs: Sequence[Output], kind: Any, first: Any, count: Any) -> tuple[str, int, int]:
        first, count = _integer(first), _integer(count)
        fits = {
            "new": first < len(outputs),
            "list": first + count <= len(outputs),
            "argument": first < len(self._arguments) and isinstance(self._arguments[first], TensorArgument | list),
            "nothing": True,
        }
        if not fits.get(_text(kind), False):
            raise ValueError(f"no such result: {kind} {first} {count}")
        return kind, first, count

    def _tensor(self, number: Any, item: Any) -> tuple[Place, TensorArgument]:
        place = _integer(number), _integer(item, -1)
        value = _at(self._arguments, place)
        if not isinstance(value, TensorArgument):
            raise ValueError(f"argument {place} is no tensor")
        return place, value


def _at(arguments: Sequence[Argument], place: Place) -> Argument:
    number, item = place
    value = arguments[number] if 0 <= number < len(arguments) else None
    if item < 0:
        return value
    return value[item] if isinstance(value, list) and item < len(value) else None


def _rows(head: Fields, name: str, length: int) -> list[list[Any]]:
    rows = head.raw().get(name)
    if not isinstance(rows, list) or len(rows) > _MANY:
        raise ValueError(f"{name} is not a list of at most {_MANY} entries")
    if any(not isinstance(row, list) or len(row) != length for row in rows):
        raise ValueError(f"{name} has an entry that is not {length} values")
    return rows


def _integer(value: Any, low: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= _LARGE:
        raise ValueError(f"not a whole number from {low} on: {value!r:.40}")
    return value


def _integers(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > 64:
        raise ValueError("not a list of at most 64 whole numbers")
    return tuple(_integer(part) for part in value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"not a text: {value!r:.40}")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"neither true nor false: {value!r:.40}")
    return value


def _extent(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """How many elements lie between a tensor's first and its last, both included."""
    if 0 in sizes:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
