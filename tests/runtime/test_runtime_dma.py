"""Copies and fills within HBM, against NumPy, and addresses that lie outside it."""

from __future__ import annotations

import mmap
import struct
import time

import numpy as np
import pytest

from neuron_runtime.executor.dma import Dma
from neuron_runtime.status import NrtError, NrtStatus

SIZE = 1 << 16


@pytest.fixture
def arena() -> mmap.mmap:
    return mmap.mmap(-1, SIZE)


def test_strided_copy_transposes(arena: mmap.mmap) -> None:
    source = np.frombuffer(arena, np.float32, 12, 0).reshape(3, 4)
    source[:] = np.arange(12).reshape(3, 4)
    Dma(arena).copy_strided(1024, 0, 4, 4, 3, 12, 4, 4, 16)
    np.testing.assert_array_equal(np.frombuffer(arena, np.float32, 12, 1024).reshape(4, 3), source.T)


def test_strided_copy_repeats_a_source_without_strides(arena: mmap.mmap) -> None:
    np.frombuffer(arena, np.int16, 2, 0)[:] = (7, 8)
    Dma(arena).copy_strided(64, 0, 2, 2, 3, 6, 2, 2, 0)
    assert np.frombuffer(arena, np.int16, 6, 64).tolist() == [7, 7, 7, 8, 8, 8]


def test_strided_copy_of_a_scalar(arena: mmap.mmap) -> None:
    np.frombuffer(arena, np.float64, 1, 0)[:] = 2.5
    Dma(arena).copy_strided(64, 0, 8)
    assert np.frombuffer(arena, np.float64, 1, 64)[0] == 2.5


def test_overlapping_ranges_are_copied_as_if_apart(arena: mmap.mmap) -> None:
    array = np.frombuffer(arena, np.uint8, 8, 0)
    array[:] = np.arange(8)
    Dma(arena).copy_strided(1, 0, 1, 7, 1, 1)
    assert array.tolist() == [0, 0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(("dtype", "value"), [("<f4", 1.5), ("<i8", -3), ("u1", 200), ("<f2", 0.5), ("<c16", 1 - 2j)])
def test_strided_fill_writes_the_element(arena: mmap.mmap, dtype: str, value: complex) -> None:
    element = np.array([value], dtype)
    low, high = struct.unpack("=2Q", element.tobytes().ljust(16, b"\0"))
    size = element.itemsize
    Dma(arena).fill_strided(128, size, low, high, 5, 2 * size)
    found = np.frombuffer(arena, dtype, 10, 128)
    assert found[::2].tolist() == [value] * 5
    assert found[1::2].tolist() == [0] * 5


def test_a_stamp_is_the_monotonic_time(arena: mmap.mmap) -> None:
    before = time.monotonic_ns()
    Dma(arena).stamp(8)
    assert before <= struct.unpack_from("@q", arena, 8)[0] <= time.monotonic_ns()


@pytest.mark.parametrize(
    ("verb", "operands"),
    [
        ("copy", (SIZE - 4, 0, 8)),
        ("copy", (0, SIZE - 4, 8)),
        ("copy_strided", (SIZE - 8, 0, 4, 3, 4, 4)),
        ("copy_strided", (0, 0, 4, 2, 4, SIZE)),
        ("fill_strided", (SIZE - 8, 8, 0, 0, 2, 8)),
        ("stamp", (SIZE - 4,)),
    ],
)
def test_addresses_outside_are_refused(arena: mmap.mmap, verb: str, operands: tuple[int, ...]) -> None:
    with pytest.raises(NrtError) as caught:
        getattr(Dma(arena), verb)(*operands)
    assert caught.value.status is NrtStatus.EXEC_OOB


def test_elements_of_an_unknown_size_are_refused(arena: mmap.mmap) -> None:
    with pytest.raises(NrtError, match="3 bytes"):
        Dma(arena).copy_strided(0, 64, 3, 1, 3, 3)
