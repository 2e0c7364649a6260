"""The graph of one call: traced on fake tensors, functional, its results in the dtypes and layouts asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from torch_neuronx.eager.call import NUMBER_DTYPES, Call, Operand, demoted
from torch_neuronx.eager.complexes import REAL, all_pairs, functional_of, pair, parts, rule_for
from torch_neuronx.eager.layout import Layout, layout_of
from torch_neuronx.eager.numbers import rewrite
from torch_neuronx.eager.plan import NOWHERE, Immediate, Output
from torch_neuronx.eager.policy import UnsupportedError
from torch_neuronx.eager.randomness import RANDOM, numbers_taken, uniform

if TYPE_CHECKING:
    import torch.fx

_WORDS = {torch.complex64: torch.int64}
_OTHER_DIMENSIONS = ("select_backward", "unsqueeze_copy")

SEED = Immediate("seed", NOWHERE, torch.int64)
OFFSET = Immediate("offset", NOWHERE, torch.int64)


@dataclass(frozen=True)
class Returned:
    """What the operator gives: its outputs, in order, and for each of its results which of them it is."""

    outputs: tuple[Output, ...]
    results: tuple[tuple[str, int, int], ...]


def expected(call: Call) -> Returned:
    """Sizes, strides and dtypes of the outputs, as PyTorch computes them for these arguments on a CPU."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from torch_neuronx.eager.decompositions import recurrent  # noqa: F401 - makes shapes known

    with FakeTensorMode(allow_non_fake_inputs=True):
        arguments = call.with_tensors(_empty, call.example)
        try:
            returned = call.invoke(arguments)
        except RuntimeError:
            # Few operators take a number for a tensor from Python, though the caller may have written one.
            arguments = call.with_tensors(_empty, lambda immediate: _as_tensor(call.example(immediate)))
            returned = call.invoke(arguments)
    outputs: list[Output] = []
    results: list[tuple[str, int, int]] = []
    for number in call.written:
        values = arguments[number]
        for item, value in enumerate(values) if isinstance(values, list) else ((-1, values),):
            outputs.append(_output(value, (number, item)))
    values = returned if isinstance(returned, tuple) and len(call.op._schema.returns) != 1 else (returned,)
    if not call.op._schema.returns:
        values = ()
    for entry, value in zip(call.op._schema.returns, values, strict=True):
        if entry.alias_info is not None:
            results.append(("argument", _aliased(call, entry), 0))
        elif isinstance(value, torch.Tensor):
            results.append(("new", len(outputs), 0))
            outputs.append(_output(value, NOWHERE))
        elif isinstance(value, (list, tuple)):
            results.append(("list", len(outputs), len(value)))
            outputs.extend(_output(part, NOWHERE) for part in value)
        elif value is None:
            results.append(("nothing", 0, 0))
        else:
            raise UnsupportedError(f"it returns a {type(value).__name__}")
    return Returned(tuple(outputs), tuple(results))


@dataclass(frozen=True)
class Graph:
    """A flat functional graph. Its placeholders are the operands as they lie, then `immediates`; `drawn` counts the
    random numbers it takes."""

    module: torch.fx.GraphModule
    immediates: tuple[Immediate, ...]
    drawn: int


def graph_of(call: Call, returned: Returned) -> Graph:
    """What computes the outputs. Numbers that vary are placeholders, and so are a seed and an offset where it draws."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    from torch_neuronx.decompositions import decompositions
    from torch_neuronx.eager.decompositions import eager_decompositions

    draws = (call.op._schema.name, call.op._schema.overload_name) in RANDOM
    immediates = (*call.immediates, SEED, OFFSET) if draws else tuple(call.immediates)
    drawn = 0

    def traced(*flat: torch.Tensor) -> list[torch.Tensor]:
        nonlocal drawn
        tensors = dict(zip((o.place for o in call.operands), flat, strict=False))
        numbers = dict(zip(immediates, flat[len(call.operands) :], strict=True))

        def draw(count: int) -> torch.Tensor:
            nonlocal drawn
            drawn = numbers_taken(count)
            return uniform(numbers[SEED], numbers[OFFSET], count)

        arguments = call.with_tensors(
            lambda operand: _operand(call, operand, tensors[operand.place]),
            lambda number: _number(number, numbers[number]),
        )
        values = _compute(call, returned, arguments, draw)
        return [_result(value, output) for value, output in zip(values, returned.outputs, strict=True)]

    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        flat = [_placeholder(_in_memory(operand), operand.dtype) for operand in call.operands]
        flat += [torch.empty((), dtype=_WORDS.get(number.dtype, number.dtype)) for number in immediates]
        table = {**decompositions(), **eager_decompositions()}
        if call.complex or any(output.dtype.is_complex for output in returned.outputs):
            # Pairs are tensors that PyTorch's functionalisation does not look into: they have to be gone before it.
            traced = make_fx(traced)(*flat)
        module = make_fx(torch.func.functionalize(traced, remove="mutations"), decomposition_table=table)(*flat)
    return Graph(module, immediates, drawn)


def _compute(
    call: Call, returned: Returned, arguments: list[Any], draw: Callable[[int], torch.Tensor]
) -> list[torch.Tensor]:
    """The outputs in order: what the operator writes, then what it makes."""
    name, overload = call.op._schema.name, call.op._schema.overload_name
    random = RANDOM.get((name, overload))
    function: Callable[..., Any] | None = None
    if call.complex or any(output.dtype.is_complex for output in returned.outputs):
        return _compute_pairs(call, returned, arguments)
    if random is not None:
        function = lambda *args, **kwargs: random(draw, *args, **kwargs)  # noqa: E731
    elif call.stand_in is not None:
        function = None
    elif any(number.place[1] < 0 and not _is_tensor_argument(call, number) for number in call.immediates):
        function = rewrite(name)
    if function is not None:
        made = call.invoke(arguments, function)
        return list(made) if isinstance(made, tuple) else [made]
    given = call.invoke(arguments)
    written: list[torch.Tensor] = []
    for number in call.written:
        values = arguments[number]
        written.extend(values if isinstance(values, list) else [values])
    fresh: list[torch.Tensor] = []
    values = given if isinstance(given, tuple) and len(call.op._schema.returns) != 1 else (given,)
    for entry, value in zip(call.op._schema.returns, values, strict=bool(call.op._schema.returns)):
        if entry.alias_info is None:
            fresh.extend(value if isinstance(value, (list, tuple)) else [value] if value is not None else [])
    return written + fresh


def _compute_pairs(call: Call, returned: Returned, arguments: list[Any]) -> list[torch.Tensor]:
    """What an operator makes of complex numbers, or complex ones of real ones."""
    function = functional_of(call.op)
    rule = rule_for(call.op._schema.name)
    if rule is None and any(
        number.place[1] < 0 and not _is_tensor_argument(call, number) for number in call.immediates
    ):
        rule = rewrite(call.op._schema.name)
        arguments = all_pairs(call.op, arguments)
    kept = [
        (entry, value)
        for entry, value in zip(call.schema, arguments, strict=True)
        if not entry.is_out or function is call.op
    ]
    positional = [value for entry, value in kept if not entry.kwarg_only]
    named = {entry.name: value for entry, value in kept if entry.kwarg_only}
    if "dtype" in named and rule is not None:
        named["dtype"] = returned.outputs[0].dtype
    made = rule(*positional, **named) if rule is not None else function(*all_pairs(call.op, positional), **named)
    return list(made) if isinstance(made, (tuple, list)) else [made]


def _placeholder(sizes: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    real = REAL.get(dtype)
    return torch.empty(sizes, dtype=dtype) if real is None else torch.empty((*sizes, 2), dtype=real)


def _number(immediate: Immediate, value: torch.Tensor) -> torch.Tensor:
    if not immediate.dtype.is_complex:
        return value
    halves = value.reshape(1).view(torch.float32)
    return pair(halves[0], halves[1])


def _along_a_dimension(call: Call) -> bool:
    """Whether the operator works along dimensions of its first tensor, and that one has none."""
    first = call.operands[0]
    named = any(entry.name in ("dim", "dims") for entry in call.schema)
    return named and first.place == (0, -1) and not first.sizes and not call.op._schema.name.endswith(_OTHER_DIMENSIONS)


def _is_tensor_argument(call: Call, immediate: Immediate) -> bool:
    return "Tensor" in str(call.schema[immediate.place[0]].type)


def _operand(call: Call, operand: Operand, base: torch.Tensor) -> torch.Tensor:
    """The tensor as the operator sees it. What it writes is a copy here, so that the graph has no side effects."""
    if operand.dtype.is_complex:
        # Operators on pairs are asked for what they give, not to overwrite anything.
        return pair(*(_narrowed(operand.layout.apply(base.select(-1, part)), call.demotes) for part in (0, 1)))
    value = operand.layout.apply(base)
    sizes = operand.sizes
    if not sizes and _along_a_dimension(call):
        # PyTorch lets a tensor without dimensions have one for such operators; torch-mlir may end the process.
        value, sizes = value.reshape(1), (1,)
    value = _narrowed(value, call.demotes)
    entry = call.schema[operand.place[0]]
    if operand.place[0] in call.written:
        if entry.is_out:
            return torch.empty(sizes, dtype=value.dtype)
        return value.clone()
    return value


def _result(value: torch.Tensor, output: Output) -> torch.Tensor:
    real = REAL.get(output.dtype)
    if real is not None:
        halves = [_result(part, replace(output, dtype=real)) for part in parts(value)]
        return torch.stack(halves, -1)
    if output.sizes:
        value = _narrowed(value.to(demoted(output.dtype)))
    value = value.to(output.dtype)
    if value.shape != output.sizes and not output.sizes:
        value = value.reshape(())
    elif value.shape != output.sizes:
        value = value.expand(output.sizes)
    return _stored(output).undo(value).contiguous()


def _narrowed(value: torch.Tensor, demotes: bool = True) -> torch.Tensor:
    """64-bit numbers as the device has them. int64 stays the type, since PyTorch asks for it in indices."""
    if not demotes:
        return value
    if value.dtype is torch.int64:
        return value.to(torch.int32).to(torch.int64)
    return value.to(demoted(value.dtype))


def _stored(output: Output) -> Layout:
    if not output.direct:
        return layout_of(output.sizes, _contiguous(output.sizes))
    return layout_of(output.sizes, output.strides)


def _output(value: torch.Tensor, target: tuple[int, int]) -> Output:
    sizes, strides = tuple(value.shape), tuple(value.stride())
    if value.numel() == 0:
        return Output(target, sizes, strides, value.dtype, True)
    layout = layout_of(sizes, strides)
    dense = math.prod(layout.base) == value.numel() and (layout.as_it_lies or value.is_contiguous())
    if target == NOWHERE and not dense:
        strides, dense = _contiguous(sizes), True
    return Output(target, sizes, strides, value.dtype, dense)


def _aliased(call: Call, entry: Any) -> int:
    names = set(entry.alias_info.before_set)
    for number in call.written:
        if names & set(call.schema[number].alias_info.before_set):
            return number
    raise UnsupportedError("it returns a view of an argument")


def _in_memory(operand: Operand) -> tuple[int, ...]:
    layout = operand.layout
    return layout.base if layout.as_it_lies else operand.sizes


def _empty(operand: Operand) -> torch.Tensor:
    return torch.empty_strided(operand.sizes, operand.strides, dtype=operand.dtype, device="cpu")


def _as_tensor(value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value
    return torch.full((), value, dtype=NUMBER_DTYPES[type(value).__name__])


def _contiguous(sizes: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
