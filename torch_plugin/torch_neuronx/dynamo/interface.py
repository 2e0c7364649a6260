"""The device as Dynamo sees it."""

from __future__ import annotations

from typing import Any

import torch
from torch._dynamo.device_interface import DeviceInterface

from torch_neuronx import _C, neuron


class NeuronInterface(DeviceInterface):
    """Everything is `torch.neuron`'s."""

    device = neuron.device
    Event = torch.Event
    Stream = torch.Stream

    class Worker:
        set_device = staticmethod(neuron.set_device)
        current_device = staticmethod(neuron.current_device)
        get_device_properties = staticmethod(neuron.get_device_properties)

    current_device = staticmethod(neuron.current_device)
    set_device = staticmethod(neuron.set_device)
    device_count = staticmethod(neuron.device_count)
    is_available = staticmethod(neuron.is_available)
    stream = staticmethod(neuron.stream)
    current_stream = staticmethod(neuron.current_stream)
    set_stream = staticmethod(neuron.set_stream)
    synchronize = staticmethod(neuron.synchronize)
    memory_allocated = staticmethod(neuron.memory_allocated)

    @staticmethod
    def exchange_device(device: int) -> int:
        return int(_C.exchange_device(device))

    @staticmethod
    def maybe_exchange_device(device: int) -> int:
        return neuron.current_device() if device < 0 else int(_C.exchange_device(device))

    @staticmethod
    def get_raw_stream(device_idx: int) -> int:
        return 0

    @staticmethod
    def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
        neuron.set_stream(torch.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))

    @classmethod
    def get_device_properties(cls, device: Any = None) -> Any:
        return neuron.get_device_properties(device)

    @staticmethod
    def get_compute_capability(device: Any = None) -> int:
        return 0

    @staticmethod
    def is_bf16_supported(including_emulation: bool = False) -> bool:
        return neuron.is_bf16_supported()

    @staticmethod
    def is_triton_capable(device: Any = None) -> bool:
        return False
