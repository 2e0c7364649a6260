"""The shapes to compile a program for: as words on a command line, in a file, and put on a program's inputs."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch_neuronx.errors import InputMismatchError
from torch_neuronx.factory import Example

if TYPE_CHECKING:
    import torch

Shapes = tuple[tuple[int, ...], ...]
_USAGE = "write a shape as `1x128`, and several inputs as `1x128,1x64`"


def parse_shapes(text: str) -> Shapes:
    """`1x128` or `1x128,1x64`: a shape for each tensor among the inputs, or one. Raises InputMismatchError."""
    words = text.replace(" ", "").split(",")
    if not all(re.fullmatch(r"\d+(x\d+)*", word) for word in words):
        raise InputMismatchError(f"`{text}` is no shape", hint=_USAGE)
    return tuple(tuple(int(size) for size in word.split("x")) for word in words)


def read_shapes(path: Path) -> list[Shapes]:
    """`shapes = ["1x128", "1x256"]` of a TOML file, or such a list (alone or below `shapes`) in a JSON file."""
    try:
        text = path.read_text()
        found: Any = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (OSError, ValueError) as error:
        raise InputMismatchError(f"cannot read shapes from `{path}`: {error}", hint=_FILE) from error
    listed = found.get("shapes") if isinstance(found, dict) else found
    if not isinstance(listed, list) or not listed or not all(isinstance(item, str) for item in listed):
        raise InputMismatchError(f"`{path}` has no list of shapes", hint=_FILE)
    return [parse_shapes(item) for item in listed]


_FILE = 'a TOML file says `shapes = ["1x128", "1x256"]`, a JSON file `["1x128", "1x256"]`'


def with_shapes(example: Example, shapes: Shapes) -> Example:
    """The same call with inputs of other shapes, filled with zeros; dtypes stay.

    One shape is for the first tensor and for all that have the shape of the first. InputMismatchError where the number
    of shapes is not that of the tensors, or a number of dimensions changes.
    """
    import torch
    from torch.utils._pytree import tree_flatten, tree_unflatten

    leaves, structure = tree_flatten((example.args, example.kwargs))
    numbers = [number for number, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    if not numbers:
        raise InputMismatchError("the program has no tensors among its inputs", hint="leave out `--shape`")
    if len(shapes) == 1:
        first = leaves[numbers[0]].shape
        numbers = [number for number in numbers if leaves[number].shape == first]
        shapes = shapes * len(numbers)
    if len(shapes) != len(numbers):
        raise InputMismatchError(f"{len(shapes)} shapes for {len(numbers)} tensors among the inputs", hint=_USAGE)
    for number, shape in zip(numbers, shapes, strict=True):
        leaves[number] = _reshaped(leaves[number], shape)
    args, kwargs = tree_unflatten(leaves, structure)
    return Example(example.module, args, kwargs)


def _reshaped(tensor: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    if tensor.dim() != len(shape):
        written = "x".join(map(str, shape))
        raise InputMismatchError(
            f"`{written}` has {len(shape)} dimensions, the input {tensor.dim()}: {tuple(tensor.shape)}", hint=_USAGE
        )
    return tensor.new_zeros(shape)
