"""Eager mode: what C++ asks when it meets an operator, or a signature of one, for the first time."""

from __future__ import annotations

from torch_neuronx.eager.numbers import runtime_numbers
from torch_neuronx.eager.planning import make_plan
from torch_neuronx.eager.policy import fell_back

__all__ = ["fell_back", "make_plan", "runtime_numbers"]
