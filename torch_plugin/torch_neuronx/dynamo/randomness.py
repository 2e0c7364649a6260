"""Random operators inside compiled graphs, drawn from the generator of the device as eager mode draws.

While AOTAutograd traces, a random operator becomes arithmetic on a seed and an offset. Those two are operators of their
own: the forward graph gets them with each call, and the backward graph gets the forward's, so that what it computes
again comes out as it was.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_neuronx.eager.randomness import numbers_taken, uniform

_calls = itertools.count()


@torch.library.custom_op("torch_neuronx::random_seed", mutates_args=())
def random_seed(device: torch.device) -> torch.Tensor:
    """int64 without dimensions: the seed of the device's generator."""
    return torch.tensor(int(_state(device)[0]), dtype=torch.int64, device=device)


@torch.library.custom_op("torch_neuronx::random_offset", mutates_args=())
def random_offset(call: int, count: int, device: torch.device) -> torch.Tensor:
    """int64 without dimensions: where the next `count` numbers of the stream begin. `call` tells calls apart."""
    state = _state(device)
    begin = int(state[1])
    state[1] += count
    _generator(device).set_state(state.view(torch.uint8))
    return torch.tensor(begin, dtype=torch.int64, device=device)


@random_seed.register_fake
def _(device: torch.device) -> torch.Tensor:
    return torch.empty((), dtype=torch.int64, device=device)


@random_offset.register_fake
def _(call: int, count: int, device: torch.device) -> torch.Tensor:
    return torch.empty((), dtype=torch.int64, device=device)


def _generator(device: torch.device) -> torch.Generator:
    from torch_neuronx import _C

    found: torch.Generator = _C.default_generator(-1 if device.index is None else device.index)
    return found


def _state(device: torch.device) -> torch.Tensor:
    return _generator(device).get_state().view(torch.int64)


def _draw(count: int, device: torch.device) -> torch.Tensor:
    """float32 in [0, 1), from the device's generator wherever the program wants them."""
    drawing = device
    if device.type != "neuron":
        drawing = torch.device("neuron", torch.neuron.current_device())  # type: ignore[attr-defined]
    ops = torch.ops.torch_neuronx
    seed = ops.random_seed(drawing)
    made = uniform(seed, ops.random_offset(next(_calls), numbers_taken(count), drawing), count)
    return made.to(device)


@functools.cache
def random_decompositions() -> dict[Any, Callable[..., Any]]:
    """By operator, for AOTAutograd."""
    from torch_neuronx.eager.randomness import RANDOM

    aten = torch.ops.aten

    def drawn(name: str, overload: str = "") -> Callable[..., Any]:
        function = RANDOM[f"aten::{name}", overload]

        def decomposed(value: torch.Tensor, *args: Any, generator: Any = None, **kwargs: Any) -> Any:
            if generator is not None:
                return NotImplemented
            made = function(lambda count: _draw(count, value.device), value, *args, **kwargs)
            if isinstance(made, tuple):
                return tuple(part.to(value.dtype) if part.is_floating_point() else part for part in made)
            return made.to(value.dtype)

        return decomposed

    return {
        aten.native_dropout.default: drawn("native_dropout"),
        aten.uniform.default: drawn("uniform_"),
        aten.normal_functional.default: drawn("normal_"),
        aten.exponential.default: drawn("exponential_"),
        aten.bernoulli.default: drawn("bernoulli"),
        aten.bernoulli.p: drawn("bernoulli_", "float"),
        aten.bernoulli.Tensor: drawn("bernoulli_", "Tensor"),
        aten.rand.default: functools.partial(_factory, _uniform),
        aten.randn.default: functools.partial(_factory, _normal),
        aten.rand_like.default: functools.partial(_like, _uniform),
        aten.randn_like.default: functools.partial(_like, _normal),
        aten.randint.default: _randint,
        aten.randint.low: _randint_between,
        aten.randint_like.default: _randint_like,
        aten.randint_like.low_dtype: _randint_like_between,
    }


def _uniform(sizes: Sequence[int], device: torch.device) -> torch.Tensor:
    return _draw(math.prod(sizes), device).reshape(list(sizes))


def _normal(sizes: Sequence[int], device: torch.device) -> torch.Tensor:
    from torch_neuronx.eager.randomness import RANDOM

    shape_only = torch.empty(list(sizes), dtype=torch.float32, device=device)
    made: torch.Tensor = RANDOM["aten::normal_", ""](lambda count: _draw(count, device), shape_only)
    return made


def _factory(make: Any, sizes: Sequence[int], *, dtype: Any = None, device: Any = None, **_: Any) -> torch.Tensor:
    made: torch.Tensor = make(sizes, torch.device(device or "cpu"))
    return made.to(dtype or torch.get_default_dtype())


def _like(make: Any, value: torch.Tensor, *, dtype: Any = None, device: Any = None, **_: Any) -> torch.Tensor:
    made: torch.Tensor = make(value.shape, torch.device(device) if device is not None else value.device)
    return made.to(dtype or value.dtype)


def _randint(high: int, sizes: Sequence[int], **kwargs: Any) -> torch.Tensor:
    return _randint_between(0, high, sizes, **kwargs)


def _randint_between(
    low: int, high: int, sizes: Sequence[int], *, dtype: Any = None, device: Any = None, **_: Any
) -> torch.Tensor:
    numbers = torch.floor(_uniform(sizes, torch.device(device or "cpu")) * (high - low))
    return (numbers.to(torch.int64).clamp(max=high - low - 1) + low).to(dtype or torch.int64)


def _randint_like(value: torch.Tensor, high: int, **kwargs: Any) -> torch.Tensor:
    return _randint_like_between(value, 0, high, **kwargs)


def _randint_like_between(
    value: torch.Tensor, low: int, high: int, *, dtype: Any = None, device: Any = None, **_: Any
) -> torch.Tensor:
    return _randint_between(low, high, value.shape, dtype=dtype or value.dtype, device=device or value.device)
