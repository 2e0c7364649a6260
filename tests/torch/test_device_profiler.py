"""`torch.profiler` with the device's activity: spans, their operators, their NEFFs; and `torch_neuronx.profiling`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from device_kit import DeviceHost

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("neuron")]


def take(directory: Path, work: Any, **options: Any) -> tuple[Any, list[dict[str, Any]]]:
    """A profile of `work()` and the events of its Chrome trace."""
    from torch.profiler import ProfilerActivity, profile

    activities = options.pop("activities", [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1])
    with profile(activities=activities, **options) as taken:
        work()
    path = directory / "trace.json"
    taken.export_chrome_trace(str(path))
    return taken, json.loads(path.read_text())["traceEvents"]


def of_category(events: list[dict[str, Any]], category: str) -> list[dict[str, Any]]:
    return [event for event in events if event.get("cat") == category and event["ph"] == "X"]


def test_operators_have_spans_of_the_device_that_begin_after_the_host_asked(tmp_path: Path) -> None:
    left, right = torch.ones(37, 5, device="neuron"), torch.ones(5, 11, device="neuron")

    def work() -> None:
        for _ in range(3):
            torch.mm(left, right)
        left.clone().fill_(2)

    taken, events = take(tmp_path, work)
    kernels = [event for event in of_category(events, "kernel") if event["args"]["operator"] == "aten::mm"]
    assert len(kernels) == 3
    assert {event["pid"] for event in kernels} == {0}
    key = kernels[0]["args"]["neff"]
    assert len(key) == 12
    assert {event["name"] for event in kernels} == {f"aten::mm {key}"}
    asked = {event["args"]["External id"]: event for event in of_category(events, "cpu_op")}
    for kernel in kernels:
        operator = asked[kernel["args"]["External id"]]
        assert operator["name"] == "aten::mm"
        assert operator["ts"] <= kernel["ts"]
    ends = [event["ts"] + event["dur"] for event in kernels]
    assert all(end <= event["ts"] for end, event in zip(ends, kernels[1:], strict=False))
    assert of_category(events, "gpu_memcpy")
    assert of_category(events, "gpu_memset")
    named = [event for event in events if event.get("name") == "process_name" and event["pid"] == 0]
    assert "neuron:0" in {event["args"]["name"] for event in named}
    (row,) = [row for row in taken.key_averages() if row.key == "aten::mm"]
    assert row.count == 3
    assert row.device_time_total == pytest.approx(sum(event["dur"] for event in kernels), abs=1)


def test_a_new_signature_has_a_compile_span_and_a_known_one_has_none(tmp_path: Path) -> None:
    tensor = torch.ones(3, 41, device="neuron")

    def compiles(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
        calls = of_category(events, "privateuse1_runtime")
        return [event for event in calls if event["name"] == "compile aten::tanh"]

    _, events = take(tmp_path, tensor.tanh)
    (span,) = compiles(events)
    assert span["args"]["cache"] in ("compiled", "local_hit", "shared_hit")
    (kernel,) = of_category(events, "kernel")
    assert kernel["args"]["neff"] == span["args"]["neff"]
    assert span["ts"] + span["dur"] <= kernel["ts"]
    _, events = take(tmp_path, tensor.tanh)
    assert not compiles(events)
    assert len(of_category(events, "kernel")) == 1


def test_a_profile_of_the_host_alone_records_nothing_of_the_device(tmp_path: Path, neuron: Any) -> None:
    from torch.profiler import ProfilerActivity

    from torch_neuronx import _C

    tensor = torch.ones(8, device="neuron")
    tensor.neg()
    neuron.synchronize()

    def work() -> None:
        before = _C.submitted(0)
        tensor.neg()
        assert _C.submitted(0) == before + 1

    _, events = take(tmp_path, work, activities=[ProfilerActivity.CPU])
    assert not of_category(events, "kernel")


def test_memory_of_a_profile_is_given_back(tmp_path: Path, neuron: Any) -> None:
    tensor = torch.ones(8, device="neuron")
    before = neuron.memory_allocated()
    take(tmp_path, lambda: [tensor.fill_(number) for number in range(5000)])
    assert neuron.memory_allocated() == before


def test_backward_work_belongs_to_the_operators_of_its_thread(tmp_path: Path) -> None:
    weight = torch.ones(6, 6, device="neuron", requires_grad=True)
    _, events = take(tmp_path, lambda: (weight @ weight).sum().backward())
    operators = {event["args"]["External id"]: event for event in of_category(events, "cpu_op")}
    threads = set()
    for kernel in of_category(events, "kernel"):
        operator = operators[kernel["args"]["External id"]]
        assert operator["name"] == kernel["args"]["operator"]
        threads.add(operator["tid"])
    assert len(threads) == 2


def test_neuron_config_writes_the_spans_where_it_is_told(tmp_path: Path) -> None:
    from torch_neuronx.profiling import NeuronConfig, ProfileMode

    config = NeuronConfig(modes=[ProfileMode.RUNTIME], profile_output_dir=tmp_path / "out")
    tensor = torch.ones(8, device="neuron")
    take(tmp_path, tensor.neg, experimental_config=config)
    (path,) = (tmp_path / "out").glob("*.json")
    (event,) = [event for event in json.loads(path.read_text())["traceEvents"] if event["cat"] == "execute"]
    assert (event["name"], event["pid"], event["ph"]) == ("aten::neg", "neuron:0", "X")
    assert event["dur"] > 0
    assert len(event["args"]["neff"]) == 12


def test_neuron_config_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    from torch_neuronx.profiling import NeuronConfig

    torch.ones(8, device="neuron").neg()
    with pytest.raises(ValueError, match="comes too late"):
        NeuronConfig(neff_cache_dir=tmp_path)
    with pytest.raises(ValueError, match="modes is empty"):
        NeuronConfig(modes=[])
    with pytest.raises(ValueError, match="hardware"):
        NeuronConfig(modes=["hardware"])  # type: ignore[list-item]


def test_neuron_config_moves_the_local_cache(device_host: DeviceHost, tmp_path: Path) -> None:
    device_host.run(
        f"""
        import torch
        from torch_neuronx.profiling import NeuronConfig
        NeuronConfig(neff_cache_dir={str(tmp_path)!r})
        torch.ones(3, device="neuron").neg().cpu()
        """
    )
    assert list(tmp_path.rglob("*.neff"))
