"""Commands that move bytes within a core's HBM. Every address is checked: a wrong one is the client's error."""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Sequence
from typing import Any

from neuron_runtime.status import NrtError, NrtStatus

_ELEMENTS = {1: "u1", 2: "u2", 4: "u4", 8: "u8", 16: "c16"}
_PLANS_KEPT = 256


class Dma:
    """Copies and fills over one arena."""

    def __init__(self, arena: mmap.mmap) -> None:
        self._arena = arena
        self._view = memoryview(arena)
        self._plans: dict[tuple[int, ...], tuple[Any, Any]] = {}

    def copy(self, destination: int, source: int, nbytes: int) -> None:
        self._check(destination, nbytes)
        self._check(source, nbytes)
        self._view[destination : destination + nbytes] = self._view[source : source + nbytes]

    def fill(self, destination: int, nbytes: int, value: int) -> None:
        self._check(destination, nbytes)
        import numpy as np

        np.frombuffer(self._arena, np.uint8, nbytes, destination)[:] = value & 0xFF

    def copy_strided(self, *operands: int) -> None:
        """Destination, source, bytes an element, sizes, destination strides, source strides."""
        arrays = self._plans.get(operands)
        if arrays is None:
            arrays = self._arrays(operands)
            if len(self._plans) >= _PLANS_KEPT:
                self._plans.pop(next(iter(self._plans)))
            self._plans[operands] = arrays
        arrays[0][...] = arrays[1]

    def fill_strided(self, destination: int, itemsize: int, low: int, high: int, *shape: int) -> None:
        """Destination, bytes an element, the element, sizes, strides."""
        rank = len(shape) // 2
        array = self._array(destination, itemsize, shape[:rank], shape[rank : 2 * rank])
        array[...] = array.dtype.type(_element(itemsize, low, high))

    def stamp(self, destination: int) -> None:
        self._check(destination, 8)
        struct.pack_into("@q", self._arena, destination, time.monotonic_ns())

    def _arrays(self, operands: tuple[int, ...]) -> tuple[Any, Any]:
        destination, source, itemsize, *shape = operands
        rank = len(shape) // 3
        sizes = shape[:rank]
        return (
            self._array(destination, itemsize, sizes, shape[rank : 2 * rank]),
            self._array(source, itemsize, sizes, shape[2 * rank : 3 * rank]),
        )

    def _array(self, offset: int, itemsize: int, sizes: Sequence[int], strides: Sequence[int]) -> Any:
        import numpy as np

        element = _ELEMENTS.get(itemsize)
        if element is None:
            raise NrtError(NrtStatus.INVALID, f"elements of {itemsize} bytes cannot be copied")
        last = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
        self._check(offset, last + itemsize)
        return np.ndarray(tuple(sizes), element, self._arena, offset, tuple(strides))

    def _check(self, offset: int, nbytes: int) -> None:
        if offset + nbytes > len(self._arena):
            raise NrtError(
                NrtStatus.EXEC_OOB,
                f"{nbytes} bytes at HBM offset {offset:#x} are outside the core's memory",
            )


def _element(itemsize: int, low: int, high: int) -> int | complex:
    if itemsize == 16:
        real, imaginary = struct.unpack("@2d", struct.pack("@2Q", low, high))
        return complex(real, imaginary)
    return low & ((1 << (8 * itemsize)) - 1)
