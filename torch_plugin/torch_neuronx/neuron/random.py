"""The device's random numbers. Their state is a seed and a position: 16 bytes on the CPU."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from torch_neuronx import _C
from torch_neuronx.neuron.devices import device_count, index_of


def _generator(device: Any = None) -> torch.Generator:
    generator: torch.Generator = _C.default_generator(index_of(device))
    return generator


def manual_seed(seed: int) -> None:
    """Seeds the current device."""
    _generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds every device."""
    for index in range(device_count()):
        _generator(index).manual_seed(int(seed))


def seed() -> None:
    """Seeds the current device at random."""
    _generator().seed()


def seed_all() -> None:
    """Seeds every device with one random seed."""
    manual_seed_all(_generator().seed())


def initial_seed() -> int:
    """The seed of the current device."""
    return _generator().initial_seed()


def get_rng_state(device: Any = "neuron") -> torch.Tensor:
    """A CPU tensor of bytes, for `set_rng_state`."""
    return _generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """One state a device."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state(new_state: torch.Tensor, device: Any = "neuron") -> None:
    """Continues where `get_rng_state` was called."""
    _generator(device).set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """One state a device, in order."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
