"""A compiled graph as AOTAutograd calls it: a list of arguments in, a list of results out, nothing waited for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from torch_neuronx.dynamo.boundary import Boundary, Handed, Plain, Result, View
from torch_neuronx.dynamo.options import enabled

if TYPE_CHECKING:
    from neuron_runtime.client.model import NrtpyModel


class Executable:
    """Inputs already in HBM are read where they lie. Those on the host are copied there first."""

    def __init__(
        self, boundary: Boundary, model: NrtpyModel | None, name: str, device: int, *, retain: bool = False
    ) -> None:
        """`retain`: results go where the traced program had them, rather than staying on the device."""
        from torch_neuronx import _C

        self._boxed_call = True  # on the object: PyTorch wraps it and copies no more than that
        self._copies = not enabled("TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY", False)
        self._retain = retain or enabled("TORCH_NEURONX_RETAIN_DEVICE_MODE", False)
        self._operands = tuple(operand.argument for operand in boundary.operands)
        self._give: list[Callable[[Sequence[Any], Sequence[torch.Tensor]], Any]] = [
            self._giver(result) for result in boundary.results
        ]
        self._model = model  # keeps it loaded
        self._graph = None
        if model is not None:
            self._graph = _C.GraphModel(
                name=name,
                model=model.identity,
                device=device,
                random_numbers=boundary.random_numbers,
                operands=[(operand.argument, list(operand.strides)) for operand in boundary.operands],
                numbers=[(number.argument, number.dtype) for number in boundary.numbers],
                made=[
                    (-1 if made.target is None else made.target, list(made.sizes), list(made.strides), made.dtype)
                    for made in boundary.made
                ],
            )

    def __call__(self, arguments: list[Any]) -> list[Any]:
        given = list(arguments)
        arguments.clear()
        made: Sequence[torch.Tensor] = ()
        if self._graph is not None:
            if not self._copies:
                self._refuse_host(given)
            made = self._graph.run(given)
        return [give(given, made) for give in self._give]

    def _refuse_host(self, given: Sequence[Any]) -> None:
        for number in self._operands:
            if given[number].device.type == "cpu":
                raise RuntimeError(
                    f"Input tensor at index {number} is on cpu device, and "
                    "TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY forbids to copy it. Move it to `neuron` first"
                )

    def _giver(self, result: Result) -> Callable[[Sequence[Any], Sequence[torch.Tensor]], Any]:
        if isinstance(result, Plain):
            value = result.value
            return lambda given, made: value
        if isinstance(result, Handed):
            argument, of = result.argument, result.view
            return lambda given, made: _part(given[argument], of)
        index, device, view = result.index, result.device, result.view
        if self._retain and device.type != "neuron":
            return lambda given, made: _part(made[index], view).to(device)
        return lambda given, made: _part(made[index], view)


def _part(whole: torch.Tensor, view: View | None) -> torch.Tensor:
    if view is None:
        return whole
    if whole.stride() != view.whole:
        whole = torch.empty_strided(whole.shape, view.whole, dtype=whole.dtype, device=whole.device).copy_(whole)
    return whole.as_strided(view.sizes, view.strides, whole.storage_offset() + view.offset)
