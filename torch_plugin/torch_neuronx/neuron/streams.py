"""Streams and events. A NeuronCore has one in-order queue: streams are names, and every wait for another holds."""

from __future__ import annotations

from typing import Any

import torch

from torch_neuronx.neuron.devices import index_of


class Stream(torch.Stream):
    """A stream of a neuron device, by default of the current one."""

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> Stream:
        if "stream_id" in kwargs:
            return super().__new__(cls, **kwargs)
        return super().__new__(cls, device=torch.device("neuron", index_of(device)), priority=priority)


class Event:
    """A point in a stream; `enable_timing` lets `elapsed_time` measure between two of them, in milliseconds.

    Makes a `torch.Event`, of which PyTorch accepts no subclass.
    """

    def __new__(cls, enable_timing: bool = False, blocking: bool = False) -> torch.Event:  # type: ignore[misc]
        return torch.Event("neuron", enable_timing=enable_timing, blocking=blocking)


def current_stream(device: Any = None) -> torch.Stream:
    """What work is submitted to."""
    return torch.accelerator.current_stream(torch.device("neuron", index_of(device)))


def default_stream(device: Any = None) -> Stream:
    """The stream that is current unless another is set."""
    return Stream(stream_id=0, device_index=index_of(device), device_type=_device_type())


def set_stream(stream: torch.Stream | None) -> None:
    """Makes a stream current; None changes nothing."""
    if stream is not None:
        torch.accelerator.set_stream(stream)


class stream:  # noqa: N801 - the name of torch.cuda.stream
    """Context manager: another current stream within it; None changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._former: torch.Stream | None = None

    def __enter__(self) -> torch.Stream | None:
        if self.stream is not None:
            self._former = current_stream(self.stream.device)
            set_stream(self.stream)
        return self.stream

    def __exit__(self, *_: object) -> bool:
        set_stream(self._former)
        return False


def _device_type() -> int:
    return int(torch._C._autograd.DeviceType.PrivateUse1.value)
