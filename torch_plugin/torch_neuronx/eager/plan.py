"""How one operator with one signature runs; C++ keeps the same in plan.h."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

Place = tuple[int, int]
"""Argument number, and the number within it where the argument is a list, else -1."""

NOWHERE: Place = (-1, -1)


@dataclass(frozen=True)
class TensorInput:
    """`as_it_lies`: the graph takes the bytes in the order of memory; else they are made row-major first."""

    place: Place
    as_it_lies: bool


@dataclass(frozen=True)
class Immediate:
    """A number that travels in the command. `source`: `argument`, `seed` or `offset`."""

    source: str
    place: Place
    dtype: torch.dtype


@dataclass(frozen=True)
class Output:
    """`target`: the argument that is overwritten, or NOWHERE. `direct`: it gets the bytes in its own layout."""

    target: Place
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    direct: bool


@dataclass(frozen=True)
class Plan:
    """`results`: for each result of the operator what it is (`new`, `argument`, `list`, `nothing`), the number of the
    output or argument, and a list's length. `keep` holds the model while the plan lives."""

    model: int
    computes: bool
    random_numbers: int
    inputs: tuple[TensorInput, ...]
    immediates: tuple[Immediate, ...]
    outputs: tuple[Output, ...]
    results: tuple[tuple[str, int, int], ...]
    keep: Any
