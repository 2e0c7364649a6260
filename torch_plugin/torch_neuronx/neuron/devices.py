"""Which device is meant, and what it is."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from torch_neuronx import _C


@dataclasses.dataclass(frozen=True)
class DeviceProperties:
    """`total_memory` in bytes. `name` says that the device is simulated."""

    name: str
    total_memory: int


def index_of(device: Any = None) -> int:
    """The index of a device given as None (the current one), number, text or torch.device."""
    if device is None:
        return int(_C.current_device())
    if isinstance(device, int) and not isinstance(device, bool):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    if not isinstance(device, torch.device) or device.type != "neuron":
        raise ValueError(f"Expected a neuron device, but got: {device}")
    return int(_C.current_device()) if device.index is None else device.index


def device_count() -> int:
    """The NeuronCores of this process; starts nothing. 0 in a forked child that may not use them."""
    return int(_C.device_count())


def current_device() -> int:
    return int(_C.current_device())


def set_device(device: Any) -> None:
    """Makes a device the current one of this thread."""
    _C.exchange_device(index_of(device))


class device:  # noqa: N801 - the name of torch.cuda.device
    """Context manager: another current device within it; None or a negative index change nothing."""

    def __init__(self, device: Any) -> None:
        self.idx = -1 if device is None else index_of(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            self.prev_idx = _C.exchange_device(self.idx)

    def __exit__(self, *_: object) -> bool:
        if self.prev_idx >= 0:
            _C.exchange_device(self.prev_idx)
        return False


def get_device_name(device: Any = None) -> str:
    """`neuron:N`."""
    return f"neuron:{_checked(device)}"


def get_device_properties(device: Any = None) -> DeviceProperties:
    """Of the simulated NeuronCore."""
    from neuron_runtime.daemon.settings import DaemonSettings

    index = _checked(device)
    machine = DaemonSettings.from_environment().machine
    return DeviceProperties(f"neuron:{index} (simulated {machine.instance.name})", machine.hbm_per_core)


def _checked(device: Any) -> int:
    index = index_of(device)
    if not 0 <= index < device_count():
        raise ValueError(f"there is no neuron:{index}; this process has {device_count()} device(s)")
    return index
