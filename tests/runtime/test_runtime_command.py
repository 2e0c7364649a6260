"""`neuron-env runtime`, as a user types it, with a daemon and clients behind it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from runtime_kit import Runtime, line, wait_until

from neuron_runtime.tools.snapshot import take_snapshot

BUSY = """
    model = nrt.NrtpyModel.load_from_neff(NEFFS / "add.neff")
    x = nrt.NrtpyTensor.from_numpy(np.ones((64, 64), np.float32))
    out = model(inputs={"input0": x, "input1": x})["output0"]
    nrt.synchronize(0)
    say("ready")
    while True:
        model.execute([x, x], [out])
        nrt.synchronize(0)
"""


def neuron_env(runtime: Runtime, *args: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", "runtime", *args],
        env=runtime.environ | {"NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


def document(runtime: Runtime, *args: str) -> Any:
    return json.loads(neuron_env(runtime, *args).stdout)


def test_start_status_stop(runtime: Runtime) -> None:
    assert "not running" in neuron_env(runtime, "status", code=1).stdout
    started = neuron_env(runtime, "start").stdout
    assert started.startswith("started: trn2.3xlarge (simulated), LNC 2, pid ")
    assert neuron_env(runtime, "start").stdout.startswith("already running: ")
    status = document(runtime, "status", "--json")
    assert (status["schema_version"], status["running"], status["simulated"]) == (1, True, True)
    assert "(simulated)" in neuron_env(runtime, "status").stdout
    assert neuron_env(runtime, "stop").stdout == f"stopped: pid {status['pid']}\n"
    assert neuron_env(runtime, "stop").stdout == "no runtime was running\n"


def test_start_with_other_settings_than_the_running_ones_is_refused(runtime: Runtime) -> None:
    neuron_env(runtime, "start", "--instance-type", "trn3.48xlarge", "--lnc", "1")
    refused = neuron_env(runtime, "start", code=1)
    assert "a runtime with other settings is running: trn3.48xlarge at LNC 1" in refused.stderr
    assert "hint: type `neuron-env runtime stop` first" in refused.stderr


def test_an_unknown_instance_type_is_named_with_the_known_ones(runtime: Runtime) -> None:
    refused = neuron_env(runtime, "start", "--instance-type", "trn9.huge", code=1)
    assert "unknown instance type `trn9.huge`" in refused.stderr
    assert "trn2.3xlarge, trn2.48xlarge, trn3.48xlarge" in refused.stderr


@pytest.mark.parametrize(
    ("instance_type", "lnc", "chips", "cores", "memory", "neighbours"),
    [
        ("trn2.3xlarge", "2", 1, 4, 103079215104, []),
        ("trn2.48xlarge", "1", 16, 8, 103079215104, [1, 3, 4, 12]),
        ("trn3.48xlarge", "2", 4, 4, 154618822656, [1, 3]),
    ],
)
def test_ls_prints_the_json_of_neuron_ls(
    runtime: Runtime, instance_type: str, lnc: str, chips: int, cores: int, memory: int, neighbours: list[int]
) -> None:
    runtime.environ |= {"NEURON_ENV_INSTANCE_TYPE": instance_type, "NEURON_LOGICAL_NC_CONFIG": lnc}
    devices = document(runtime, "ls", "-j")
    assert len(devices) == chips
    assert list(devices[0]) == [
        "neuron_device",
        "bdf",
        "cpu_affinity",
        "numa_node",
        "connected_to",
        "nc_count",
        "logical_neuroncore_config",
        "memory_size",
        "neuroncore_ids",
        "neuron_processes",
    ]
    assert devices[0]["nc_count"] == cores
    assert devices[0]["memory_size"] == memory
    assert devices[0]["connected_to"] == neighbours
    assert devices[-1]["neuroncore_ids"] == list(range((chips - 1) * cores, chips * cores))
    assert "simulated" in devices[0]["bdf"]
    assert take_snapshot(runtime.paths) is None, "listing starts no daemon"


def test_ls_top_and_monitor_show_a_process_at_work(runtime: Runtime) -> None:
    client = runtime.start(BUSY, NEURON_RT_VISIBLE_CORES="1-2", NEURON_PROCESS_TAG="trainer")
    assert line(client) == "ready"

    text = neuron_env(runtime, "ls").stdout
    assert text.startswith("instance-type: trn2.3xlarge (simulated)\n")
    assert f"| {client.pid} |" in text
    (process,) = document(runtime, "ls", "-j")[0]["neuron_processes"]
    assert set(process) == {"pid", "command", "neuron_runtime_version"}
    assert process["neuron_runtime_version"].endswith("+sim")

    top = neuron_env(runtime, "top", "--once").stdout
    row = next(found.split() for found in top.splitlines() if found.startswith("   1") or found.startswith("1"))
    assert row[1] == str(client.pid)
    assert float(row[3]) > 0, "executions a second"
    assert "add" in top
    assert "native" in top

    report = document(runtime, "monitor", "--count", "1", "--period", "0.5")
    assert {"neuron_runtime_data", "system_data", "instance_info", "neuron_hardware_info"} <= report.keys()
    (data,) = report["neuron_runtime_data"]
    assert (data["pid"], data["neuron_runtime_tag"]) == (client.pid, "trainer")
    stats = data["report"]["execution_stats"]
    assert stats["execution_summary"]["completed"] > 0
    assert 0 < stats["latency_stats"]["device_latency"]["p50"] <= stats["latency_stats"]["device_latency"]["p100"]
    used = data["report"]["memory_used"]
    cores = used["neuron_runtime_used_bytes"]["usage_breakdown"]["neuroncore_memory_usage"]
    assert cores["1"]["tensors"] == 2 * 64 * 64 * 4
    assert cores["2"]["tensors"] == 0
    assert cores["1"]["model_code"] > 0
    assert cores["2"]["model_code"] == 0
    (model,) = used["loaded_models"]
    assert model["name"] == "add"
    assert 0 < data["report"]["neuroncore_counters"]["neuroncores_in_use"]["1"]["neuroncore_utilization"] <= 100
    assert report["neuron_hardware_info"]["neuron_device_type"] == "trainium2"


def test_watching_what_does_not_run_says_what_to_type(runtime: Runtime) -> None:
    for command in (("top", "--once"), ("monitor", "--count", "1")):
        assert "hint: type `neuron-env runtime start`" in neuron_env(runtime, *command, code=1).stderr


def test_foreground_serves_until_it_is_terminated(runtime: Runtime) -> None:
    command = [sys.executable, "-m", "cli.main", "runtime", "start", "--foreground", "--idle-timeout", "0"]
    server = subprocess.Popen(command, env=runtime.environ, stderr=subprocess.PIPE, text=True)
    try:
        snapshot = wait_until(lambda: take_snapshot(runtime.paths), "the foreground runtime to answer")
        assert (snapshot["pid"], snapshot["idle_timeout"]) == (server.pid, None)
    finally:
        server.terminate()
        _, log = server.communicate(timeout=30)
    assert server.returncode == 0
    assert "stopping: SIGTERM" in log
