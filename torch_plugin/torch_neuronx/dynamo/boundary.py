"""What crosses the boundary of a compiled graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

SEED, OFFSET = -1, -2
"""Numbers that are no argument: the state of the device's generator. C++ knows them too (graph.cpp)."""


@dataclass(frozen=True)
class Operand:
    """A tensor that the graph reads: argument number `argument`, lying with these strides, in elements."""

    argument: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Number:
    """A number without dimensions: an argument on the host, SEED or OFFSET."""

    argument: int
    dtype: torch.dtype


@dataclass(frozen=True)
class Made:
    """A tensor that the graph computes: a new one, or the new contents of argument `target`."""

    target: int | None
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class View:
    """A part of a tensor that lies with the strides `whole`."""

    whole: tuple[int, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Fresh:
    """New tensor number `index`, or a part of it; `device` is where it was in the program that was traced."""

    index: int
    device: torch.device
    view: View | None = None


@dataclass(frozen=True)
class Handed:
    """An argument that the graph hands on, whole or in part."""

    argument: int
    view: View | None = None


@dataclass(frozen=True)
class Plain:
    """A value that is no tensor."""

    value: Any


Result = Fresh | Handed | Plain


@dataclass(frozen=True)
class Boundary:
    """`module`: placeholders are the operands, then the numbers; results are `made`, first the new tensors.

    `results`: what the caller gets. `random_numbers` are taken from the stream with each call. Where there is nothing
    to compute there is no module.
    """

    module: torch.fx.GraphModule | None
    operands: tuple[Operand, ...]
    numbers: tuple[Number, ...]
    made: tuple[Made, ...]
    results: tuple[Result, ...]
    random_numbers: int = 0


def row_major(sizes: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements."""
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= max(int(size), 1)
    return tuple(reversed(strides))
