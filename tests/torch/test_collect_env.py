"""The proof on our own device: `python -m torch_neuronx.collect_env` is `neuron-env collect` and computes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[2]


def test_the_simulated_device_is_proved_and_called_simulated(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("NEURON_", "TORCH_NEURONX_"))}
    environ |= {
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "torch_plugin")]),
        "NEURON_ENV_CONFIG": "none",
        "NEURON_ENV_RUNTIME_DIR": str(tmp_path / "run"),
        "NEURON_ENV_RUNTIME_IDLE_TIMEOUT": "5",
        "NEURON_ENV_CACHE_URL": str(tmp_path / "shared"),
        "NEURON_ENV_CACHE_LOCAL_DIR": str(tmp_path / "local"),
    }
    run = subprocess.run(
        [sys.executable, "-m", "torch_neuronx.collect_env", "--json", "--proof-timeout", "90"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    document = json.loads(run.stdout)
    assert (document["schema_version"], document["usable"], document["simulated"]) == (1, True, True)
    assert "SIMULATED device" in document["verdict"]
    proof = document["sections"]["proof"]
    assert proof["device"] == "neuron:0 (simulated trn2.3xlarge)"
    assert proof["devices"] == 1
    assert proof["difference"] < 1e-4
    assert document["sections"]["packages"]["torch-neuronx-sim"]["version"].endswith("+sim")


def test_a_proof_that_starts_nothing_says_why() -> None:
    """Without a runtime to start the device cannot be used, and the report says so."""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "torch_plugin")])}
    environ |= {
        "NEURON_ENV_CONFIG": "none",
        "NEURON_ENV_RUNTIME_AUTOSTART": "0",
        "NEURON_ENV_RUNTIME_DIR": "/nowhere/run",
    }
    run = subprocess.run(
        [sys.executable, "-m", "cli.main", "collect"],
        env=environ,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert run.returncode == 1
    verdict = run.stdout.splitlines()[0]
    assert verdict.startswith("verdict: not usable: ")
    assert "no runtime daemon answers" in verdict
