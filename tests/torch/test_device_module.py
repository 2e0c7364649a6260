"""`torch.neuron` and `torch.accelerator`: devices, memory, random numbers, streams and events."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

MIB = 1 << 20


def test_the_accelerator_is_the_device(neuron: Any) -> None:
    assert torch.accelerator.current_accelerator().type == "neuron"
    assert torch.accelerator.device_count() == neuron.device_count() == 1
    assert neuron.is_available()
    assert neuron.is_initialized()
    assert neuron.get_device_name() == "neuron:0"
    properties = neuron.get_device_properties(0)
    assert "simulated" in properties.name
    assert properties.total_memory == 24 << 30


def test_a_device_that_does_not_exist_is_refused(neuron: Any) -> None:
    with pytest.raises(RuntimeError, match=r"must be in \[0, 1\), but got 7"):
        neuron.set_device(7)
    with pytest.raises(ValueError, match="no neuron:7"):
        neuron.get_device_properties(7)
    with neuron.device(0):
        assert neuron.current_device() == 0


def test_memory_is_counted_cached_and_given_back(neuron: Any) -> None:
    neuron.empty_cache()
    neuron.reset_peak_memory_stats()
    before, reserved = neuron.memory_allocated(), neuron.memory_reserved()
    tensor = torch.empty(64 * MIB, dtype=torch.uint8, device="neuron")
    assert neuron.memory_allocated() - before == 64 * MIB
    address = tensor.data_ptr()
    del tensor
    assert neuron.memory_allocated() == before
    assert neuron.memory_reserved() - reserved == 64 * MIB
    assert neuron.max_memory_allocated() - before == 64 * MIB
    again = torch.empty(64 * MIB, dtype=torch.uint8, device="neuron")
    assert again.data_ptr() == address
    del again
    neuron.empty_cache()
    assert neuron.memory_reserved() == reserved


def test_small_tensors_share_a_segment(neuron: Any) -> None:
    first = torch.empty(100, device="neuron")
    reserved = neuron.memory_reserved()
    more = [torch.empty(100, device="neuron") for _ in range(100)]
    assert neuron.memory_reserved() == reserved
    addresses = {tensor.data_ptr() for tensor in [first, *more]}
    assert len(addresses) == 101
    assert all(address % 64 == 0 for address in addresses)


def test_statistics_have_the_documented_keys(neuron: Any) -> None:
    stats = neuron.memory_stats()
    for key in ("allocated_bytes", "reserved_bytes", "active_bytes"):
        assert set(stats[key]) == {"current", "peak", "allocated", "freed"}
    assert {"num_alloc_retries", "num_ooms", "num_tensor_frees", "allocation_requests"} < set(stats)
    assert "reserved memory" in neuron.memory_summary()


def test_out_of_memory_says_how_much_and_leaves_the_device_usable(neuron: Any) -> None:
    ooms = neuron.memory_stats()["num_ooms"]
    with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 1\.00 TiB on neuron:0[\s\S]*allocated memory"):
        torch.empty(1 << 40, dtype=torch.uint8, device="neuron")
    assert neuron.memory_stats()["num_ooms"] == ooms + 1
    assert torch.ones(3).to("neuron").cpu().sum() == 3


def test_seeds_make_random_numbers_repeat(neuron: Any) -> None:
    torch.manual_seed(7)
    first = torch.rand(100, device="neuron").cpu()
    state = neuron.get_rng_state()
    second = torch.rand(100, device="neuron").cpu()
    assert not torch.equal(first, second)
    neuron.set_rng_state(state)
    assert torch.equal(torch.rand(100, device="neuron").cpu(), second)
    torch.manual_seed(7)
    assert torch.equal(torch.rand(100, device="neuron").cpu(), first)
    generator = torch.Generator("neuron").manual_seed(7)
    assert torch.equal(torch.rand(100, device="neuron", generator=generator).cpu(), first)
    assert neuron.initial_seed() == 7


def test_random_numbers_have_their_distributions(neuron: Any) -> None:
    torch.manual_seed(1)
    uniform = torch.rand(100_000, device="neuron").cpu()
    assert 0 <= float(uniform.min()) < 1e-3
    assert 1 > float(uniform.max()) > 1 - 1e-3
    assert abs(float(uniform.mean()) - 0.5) < 0.01
    normal = torch.randn(99_999, device="neuron").cpu()
    assert abs(float(normal.mean())) < 0.02
    assert abs(float(normal.std()) - 1) < 0.02


def test_events_measure_and_streams_are_named(neuron: Any) -> None:
    start, end = neuron.Event(enable_timing=True), neuron.Event(enable_timing=True)
    tensor = torch.zeros(4 * MIB, device="neuron")
    stream = neuron.Stream()
    with neuron.stream(stream):
        assert neuron.current_stream() == stream
        start.record()
        for _ in range(10):
            tensor.copy_(tensor.clone())
        end.record()
    assert neuron.current_stream() == neuron.default_stream()
    end.synchronize()
    assert end.query()
    assert stream.query()
    assert start.elapsed_time(end) > 0
    stream.wait_event(end)
    stream.wait_stream(neuron.current_stream())
    stream.synchronize()
