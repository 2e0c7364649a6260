"""What the caching allocator holds. Synchronise before reading: frees follow the work that uses the memory."""

from __future__ import annotations

from typing import Any

from torch_neuronx import _C
from torch_neuronx.neuron.devices import index_of


def memory_stats(device: Any = None) -> dict[str, Any]:
    """`allocated_bytes`, `reserved_bytes`, `active_bytes`, each with `current`, `peak`, `allocated`, `freed`; and the
    counters `num_alloc_retries`, `num_ooms`, `num_tensor_frees`, `allocation_requests`."""
    stats: dict[str, Any] = _C.memory_stats(index_of(device))
    return stats


def memory_allocated(device: Any = None) -> int:
    """Bytes that tensors occupy."""
    return int(memory_stats(device)["allocated_bytes"]["current"])


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that tensors occupied since the peak was reset."""
    return int(memory_stats(device)["allocated_bytes"]["peak"])


def memory_reserved(device: Any = None) -> int:
    """Bytes of the segments the allocator holds, used or not."""
    return int(memory_stats(device)["reserved_bytes"]["current"])


def max_memory_reserved(device: Any = None) -> int:
    """The most bytes of segments since the peak was reset."""
    return int(memory_stats(device)["reserved_bytes"]["peak"])


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The statistics as a table; `abbreviated` leaves its title out."""
    text: str = _C.memory_summary(index_of(device))
    return text.partition("\n")[2] if abbreviated else text


def empty_cache() -> None:
    """Gives segments that no tensor uses back to the runtime."""
    _C.empty_cache()


def reset_peak_memory_stats(device: Any = None) -> None:
    """Lets the peaks begin at what is in use now."""
    _C.reset_peak_memory_stats(index_of(device))


def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Lets the running totals and counters begin at zero."""
    _C.reset_accumulated_memory_stats(index_of(device))
