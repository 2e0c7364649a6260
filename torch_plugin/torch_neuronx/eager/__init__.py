"""Eager mode: what C++ asks when it meets an operator, or a signature of one, for the first time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch_neuronx.eager.numbers import runtime_numbers
from torch_neuronx.eager.policy import fell_back

if TYPE_CHECKING:
    from torch_neuronx.eager.planning import make_plan

__all__ = ["fell_back", "make_plan", "runtime_numbers"]


def __getattr__(name: str) -> Any:
    # The process that lowers imports this package, and is to load no device.
    if name != "make_plan":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from torch_neuronx.eager.planning import make_plan

    return make_plan
