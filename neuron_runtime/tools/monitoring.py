"""neuron-monitor: one report of what the (simulated) device did between two snapshots."""

from __future__ import annotations

from typing import Any

from neuron_runtime.tools.hostinfo import HostSample
from neuron_runtime.tools.listing import SIMULATED_INSTANCE_ID, machine_of

_COUNTS = {
    "execution_summary": (
        "completed",
        "completed_with_err",
        "completed_with_num_err",
        "timed_out",
        "incorrect_input",
        "failed_to_queue",
    ),
    "error_summary": ("generic", "numerical", "transient", "model", "runtime", "hardware"),
}


def monitor_report(
    before: dict[str, Any], now: dict[str, Any], host_before: HostSample, host_now: HostSample
) -> dict[str, Any]:
    """The document that neuron-monitor prints each period, with its keys; counts are those of the period.

    `simulated: true` is ours. Groups that a simulated device cannot know (hardware counters) are empty, and their
    `error` says so.
    """
    period = max(1e-9, now["time"] - before["time"])
    earlier = {process["pid"]: process for process in before["processes"]}
    machine = machine_of(now)
    instance = machine.instance
    return {
        "simulated": True,
        "neuron_runtime_data": [
            {
                "pid": process["pid"],
                "address": "",
                "neuron_runtime_tag": process["tag"] or str(process["pid"]),
                "error": "" if process["phase"] == "attached" else f"executor {process['phase']}",
                "report": _report(period, earlier.get(process["pid"]), process),
            }
            for process in now["processes"]
        ],
        "system_data": {
            "neuron_hw_counters": {
                "period": period,
                "neuron_devices": None,
                "error": "the simulated device has no hardware counters",
            },
            "vcpu_usage": host_now.vcpu_usage(host_before) | {"period": period, "error": ""},
            "memory_info": host_now.memory_info() | {"period": period, "error": ""},
        },
        "instance_info": {
            "instance_name": "",
            "instance_id": SIMULATED_INSTANCE_ID,
            "instance_type": instance.name,
            "instance_availability_zone": "",
            "instance_availability_zone_id": "",
            "instance_region": "",
            "ami_id": "",
            "subnet_id": "",
            "error": "",
        },
        "neuron_hardware_info": {
            "neuron_device_type": instance.device_type,
            "neuron_device_version": instance.device_version,
            "neuroncore_version": instance.neuroncore_version,
            "neuron_device_count": instance.chips,
            "neuron_device_memory_size": instance.hbm_per_chip,
            "neuroncore_per_device_count": machine.cores_per_chip,
            "logical_neuroncore_config": machine.lnc,
            "error": "",
        },
    }


def _report(period: float, before: dict[str, Any] | None, now: dict[str, Any]) -> dict[str, Any]:
    completed = _grown(before, now, "executions")
    failed = _grown(before, now, "errors")
    busy = {core: counters["busy_ns"] - _earlier(before, core, "busy_ns") for core, counters in now["cores"].items()}
    tensors = {core: counters["hbm_tensors"] for core, counters in now["cores"].items()}
    models = {core: counters["hbm_models"] for core, counters in now["cores"].items()}
    scratch = {core: sum(m["scratch_bytes"] for m in now["models"] if str(m["core"]) == core) for core in now["cores"]}
    return {
        "neuroncore_counters": {
            "period": period,
            "neuroncores_in_use": {
                core: {"neuroncore_utilization": round(min(100.0, ns / 1e7 / period), 3)} for core, ns in busy.items()
            },
            "error": "",
        },
        "execution_stats": {
            "period": period,
            "error_summary": dict.fromkeys(_COUNTS["error_summary"], 0) | {"generic": failed},
            "execution_summary": dict.fromkeys(_COUNTS["execution_summary"], 0)
            | {"completed": completed, "completed_with_err": failed},
            "latency_stats": {"total_latency": now["latency"], "device_latency": now["latency"]},
            "error": "",
        },
        "memory_used": {
            "period": period,
            "neuron_runtime_used_bytes": {
                "host": 0,
                "neuron_device": sum(tensors.values()) + sum(models.values()),
                "usage_breakdown": {
                    "host": {"application_memory": 0, "constants": 0, "dma_buffers": 0, "tensors": 0},
                    "neuroncore_memory_usage": {
                        core: {
                            "constants": 0,
                            "model_code": max(0, models[core] - scratch[core]),
                            "model_shared_scratchpad": scratch[core],
                            "runtime_memory": 0,
                            "tensors": tensors[core],
                        }
                        for core in now["cores"]
                    },
                },
            },
            "loaded_models": [
                {
                    "name": model["name"],
                    "uuid": model["uuid"],
                    "model_id": model["model_id"],
                    "is_running": True,
                    "subgraphs": {"sg_00": {"memory_used_bytes": {"neuron_device": model["code_bytes"]}}},
                }
                for model in now["models"]
            ],
            "error": "",
        },
        "neuron_runtime_vcpu_usage": {
            "period": period,
            "vcpu_usage": {"user": 0.0, "system": 0.0},
            "error": "not measured on the simulated device",
        },
    }


def _earlier(before: dict[str, Any] | None, core: str, name: str) -> int:
    return int(before["cores"].get(core, {}).get(name, 0)) if before else 0


def _grown(before: dict[str, Any] | None, now: dict[str, Any], name: str) -> int:
    return sum(int(counters[name]) - _earlier(before, core, name) for core, counters in now["cores"].items())
