"""`torch.neuron`: the functions of the device."""

from __future__ import annotations

from typing import Any

import torch

from torch_neuronx import _C
from torch_neuronx.dynamo.metrics import NeuronCompilationMetrics, get_dynamo_metrics, reset_dynamo_metrics
from torch_neuronx.neuron.devices import (
    DeviceProperties,
    current_device,
    device,
    device_count,
    get_device_name,
    get_device_properties,
    index_of,
    set_device,
)
from torch_neuronx.neuron.memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
)
from torch_neuronx.neuron.random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from torch_neuronx.neuron.streams import (
    Event,
    Stream,
    current_stream,
    default_stream,
    set_stream,
    stream,
)

__all__ = [
    "DeviceProperties",
    "Event",
    "NeuronCompilationMetrics",
    "Stream",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_name",
    "get_device_properties",
    "get_dynamo_metrics",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_dynamo_metrics",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
]


def init() -> None:
    """Starts the runtime, as the first use of the device would. Raises RuntimeError in a forked child."""
    _C.init()


def is_initialized() -> bool:
    """Whether this process holds NeuronCores."""
    return bool(_C.is_initialized())


def is_available() -> bool:
    """Whether there is at least one device; starts nothing."""
    return device_count() > 0


def synchronize(device: Any = None) -> None:
    """Waits for all work of a device, by default the current one. Raises the first error of that work."""
    _C.synchronize(index_of(device))


def get_amp_supported_dtype() -> list[torch.dtype]:
    """What `torch.autocast("neuron", dtype=...)` takes."""
    return [torch.float32, torch.float16, torch.bfloat16]


def is_bf16_supported() -> bool:
    """bfloat16 is the device's native training dtype."""
    return True


def _is_in_bad_fork() -> bool:
    return bool(_C.in_bad_fork())


def _lazy_init() -> None:
    """What torch.utils calls before device tensors are rebuilt."""
    init()


def _sleep(seconds: float) -> None:
    """Keeps the host from going on for a while; a simulated core has no cycles to burn."""
    import time

    synchronize()
    time.sleep(seconds)
