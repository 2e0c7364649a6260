"""How one call of a module maps to the flat tensors of its graph, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from neuron_runtime.tensors import TensorSpec
from torch_neuronx.dtypes import dtype_name
from torch_neuronx.errors import InputMismatchError

if TYPE_CHECKING:
    import torch
    from torch.utils._pytree import TreeSpec


@dataclass(frozen=True)
class Position:
    """A tensor: number `index` of the graph's inputs or outputs."""

    index: int


@dataclass(frozen=True)
class Constant:
    """A Python value that capture fixed."""

    value: Any


Leaf = Position | Constant


@dataclass(frozen=True)
class Call:
    """The nesting of the arguments `(args, kwargs)` and of the result, with what stands at each leaf."""

    arguments: TreeSpec
    argument_leaves: tuple[Leaf, ...]
    result: TreeSpec
    result_leaves: tuple[Leaf, ...]

    def flatten(
        self, specs: Mapping[int, TensorSpec], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> dict[int, torch.Tensor]:
        """The tensors of a call by input number, unchanged; `specs` tells what each must look like.

        InputMismatchError when a call of this form cannot be answered by the captured graph.
        """
        from torch.utils._pytree import tree_flatten_with_path, treespec_pprint

        with_paths, structure = tree_flatten_with_path((tuple(args), self._ordered(kwargs)))
        if structure != self.arguments:
            raise InputMismatchError(
                f"the arguments are nested as {treespec_pprint(structure)}, "
                f"but the program was captured with {treespec_pprint(self.arguments)}",
                hint="pass the arguments as in the captured call, or capture the module again",
            )
        tensors: dict[int, torch.Tensor] = {}
        for leaf, (path, value) in zip(self.argument_leaves, with_paths, strict=True):
            name = _name(path)
            if isinstance(leaf, Constant):
                _require_constant(name, value, leaf.value)
            else:
                _require_tensor(name, value, specs[leaf.index])
                tensors[leaf.index] = value
        return tensors

    def unflatten(self, outputs: Sequence[Any]) -> Any:
        """The module's result, with `outputs[i]` where the graph's output i belongs."""
        from torch.utils._pytree import tree_unflatten

        leaves = [leaf.value if isinstance(leaf, Constant) else outputs[leaf.index] for leaf in self.result_leaves]
        return tree_unflatten(leaves, self.result)

    def _ordered(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Keyword arguments in captured order: theirs has no meaning to the caller."""
        captured = self.arguments.child(1).context or ()
        return {name: kwargs[name] for name in sorted(kwargs, key=lambda n: _rank(captured, n))}


def _rank(captured: Sequence[str], name: str) -> tuple[int, str]:
    return (captured.index(name) if name in captured else len(captured), name)


def _name(path: Sequence[Any]) -> str:
    """`(args, kwargs)` paths as a reader writes them: `argument 0`, `mask`, `argument 1['key']`."""
    from torch.utils._pytree import keystr

    side, first, *rest = path
    key = getattr(first, "key", getattr(first, "idx", first))
    nested: str = keystr(tuple(rest))
    return (f"argument {key}" if side.idx == 0 else str(key)) + nested


def _require_constant(name: str, value: Any, captured: Any) -> None:
    if type(value) is not type(captured) or value != captured:
        raise InputMismatchError(
            f"{name} is {value!r}, but the program was captured with {captured!r} as a constant",
            hint="capture the module again with this value, or make the argument a tensor",
        )


def _require_tensor(name: str, value: Any, spec: TensorSpec) -> None:
    import torch

    wanted = f"a {spec.dtype} tensor of shape {spec.shape}"
    if not isinstance(value, torch.Tensor):
        raise InputMismatchError(
            f"{name} is a {type(value).__name__}, but the program takes {wanted}",
            hint="pass a tensor, or capture the module again",
        )
    given = (tuple(value.shape), dtype_name(value.dtype))
    if given != (spec.shape, spec.dtype):
        raise InputMismatchError(
            f"{name} is a {given[1]} tensor of shape {given[0]}, but the program takes {wanted}",
            hint="pad or cast the tensor, or capture the module again for this shape",
        )
