"""The HBM allocator: no two tensors overlap, nothing is lost, and a full core says so."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuron_runtime.device.hbm import ALIGNMENT, HbmAllocator
from neuron_runtime.status import NrtError, NrtStatus


def test_ranges_are_aligned_and_disjoint() -> None:
    hbm = HbmAllocator(1 << 20)
    offsets = [hbm.allocate(100) for _ in range(10)]
    assert all(offset % ALIGNMENT == 0 for offset in offsets)
    assert sorted(offsets) == [i * 128 for i in range(10)]


def test_a_full_core_raises_nrt_resource_with_what_is_free() -> None:
    hbm = HbmAllocator(1024)
    hbm.allocate(512)
    with pytest.raises(NrtError, match=r"out of device memory: 1000 bytes asked for, 512 of 1024 free") as caught:
        hbm.allocate(1000)
    assert caught.value.status is NrtStatus.RESOURCE
    assert hbm.usage().failures == 1
    assert hbm.usage().tensors == 512


def test_freed_neighbours_merge_so_that_the_whole_core_can_be_had_again() -> None:
    hbm = HbmAllocator(1 << 16)
    offsets = [hbm.allocate(1 << 12) for _ in range(16)]
    for offset in offsets[::2] + offsets[1::2]:
        hbm.free(offset)
    assert hbm.allocate(1 << 16) == 0


def test_models_count_against_the_capacity() -> None:
    hbm = HbmAllocator(1024)
    hbm.reserve(600)
    with pytest.raises(NrtError):
        hbm.allocate(512)
    hbm.release(600)
    hbm.allocate(1024)
    with pytest.raises(NrtError):
        hbm.reserve(1)


def test_freeing_what_is_not_allocated_is_an_invalid_handle() -> None:
    hbm = HbmAllocator(1024)
    offset = hbm.allocate(64)
    hbm.free(offset)
    with pytest.raises(NrtError) as caught:
        hbm.free(offset)
    assert caught.value.status is NrtStatus.INVALID_HANDLE


def test_an_empty_tensor_has_an_address_of_its_own() -> None:
    hbm = HbmAllocator(1024)
    assert hbm.allocate(0) != hbm.allocate(0)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5000)), max_size=80))
def test_any_order_of_allocation_and_freeing_keeps_ranges_disjoint(steps: list[tuple[bool, int]]) -> None:
    hbm = HbmAllocator(1 << 16)
    live: dict[int, int] = {}
    for allocate, number in steps:
        if allocate:
            try:
                live[hbm.allocate(number)] = number
            except NrtError:
                continue
        elif live:
            offset = sorted(live)[number % len(live)]
            del live[offset]
            hbm.free(offset)
        end = 0
        for offset in sorted(live):
            assert offset >= end
            end = offset + live[offset]
        assert end <= hbm.capacity
    for offset in list(live):
        hbm.free(offset)
    assert hbm.usage().tensors == 0
    assert hbm.allocate(hbm.capacity) == 0
