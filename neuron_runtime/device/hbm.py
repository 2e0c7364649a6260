"""The allocator of one NeuronCore's HBM: which byte ranges of its arena are in use.

Pure bookkeeping: it never touches memory. The process that owns the core owns this allocator, because a core
belongs to one process at a time; so an allocation costs no message.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

from neuron_runtime.status import NrtError, NrtStatus

ALIGNMENT = 64  # XLA:CPU reads a host buffer in place only when it is aligned so


@dataclass(frozen=True, slots=True)
class HbmUsage:
    """Bytes, now and at most; `capacity` is the core's share of its chip's HBM."""

    capacity: int
    tensors: int
    tensors_peak: int
    models: int
    allocations: int
    failures: int

    @property
    def used(self) -> int:
        return self.tensors + self.models


class HbmAllocator:
    """Best fit over a sorted free list, neighbours merged when they are freed.

    Tensors get an address; memory that loaded models need (code, scratchpad) is only reserved, since the
    simulator keeps it elsewhere. Both count against the capacity. Not thread-safe.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._free: list[tuple[int, int]] = [(0, capacity)]  # (offset, size), sorted by offset
        self._by_size: list[tuple[int, int]] = [(capacity, 0)]  # (size, offset), sorted
        self._sizes: dict[int, int] = {}
        self._tensors = self._peak = self._models = self._failures = self._allocations = 0

    def allocate(self, nbytes: int) -> int:
        """Offset of a new range of at least `nbytes`. Raises NrtError(NRT_RESOURCE) when none is free."""
        size = max(1, -(-nbytes // ALIGNMENT)) * ALIGNMENT
        at = bisect_left(self._by_size, (size, 0))
        if at == len(self._by_size) or self._tensors + self._models + size > self.capacity:
            self._failures += 1
            raise self._out_of_memory(nbytes)
        found, offset = self._by_size.pop(at)
        self._free.pop(bisect_left(self._free, (offset, found)))
        if found > size:
            self._insert(offset + size, found - size)
        self._sizes[offset] = size
        self._tensors += size
        self._peak = max(self._peak, self._tensors)
        self._allocations += 1
        return offset

    def free(self, offset: int) -> int:
        """Gives the range back; its size in bytes. Raises NrtError(NRT_INVALID_HANDLE) for an unknown one."""
        size = self._sizes.pop(offset, None)
        if size is None:
            raise NrtError(NrtStatus.INVALID_HANDLE, f"no tensor is allocated at HBM offset {offset:#x}")
        self._tensors -= size
        start, length = offset, size
        at = bisect_left(self._free, (offset, 0))
        if at < len(self._free) and self._free[at][0] == offset + size:
            length += self._remove(at)
        if at > 0 and sum(self._free[at - 1]) == offset:
            start = self._free[at - 1][0]
            length += self._remove(at - 1)
        self._insert(start, length)
        return size

    def reserve(self, nbytes: int) -> None:
        """Counts a model's memory. Raises NrtError(NRT_RESOURCE) when it does not fit."""
        if self._tensors + self._models + nbytes > self.capacity:
            self._failures += 1
            raise self._out_of_memory(nbytes)
        self._models += nbytes

    def release(self, nbytes: int) -> None:
        self._models -= nbytes

    def usage(self) -> HbmUsage:
        return HbmUsage(self.capacity, self._tensors, self._peak, self._models, self._allocations, self._failures)

    def _insert(self, offset: int, size: int) -> None:
        insort(self._free, (offset, size))
        insort(self._by_size, (size, offset))

    def _remove(self, at: int) -> int:
        offset, size = self._free.pop(at)
        self._by_size.pop(bisect_left(self._by_size, (size, offset)))
        return size

    def _out_of_memory(self, nbytes: int) -> NrtError:
        largest = self._by_size[-1][0] if self._by_size else 0
        return NrtError(
            NrtStatus.RESOURCE,
            f"out of device memory: {nbytes} bytes asked for, {self.capacity - self._tensors - self._models} of "
            f"{self.capacity} free, largest free range {largest}",
            hint="free tensors or unload models, or spread the work over more NeuronCores",
        )
