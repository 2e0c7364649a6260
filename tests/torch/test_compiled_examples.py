"""The examples' models, compiled whole: they learn as on the CPU, and each NEFF is made once for all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from device_kit import DeviceHost

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from compiled_examples import losses  # noqa: E402 - needs torch

PROGRAM = Path(__file__).with_name("compiled_examples.py")


def test_gpt_and_cnn_learn_as_on_the_cpu_and_nobody_compiles_again(device_host: DeviceHost, tmp_path: Path) -> None:
    settings = device_host.settings() | {
        "NEURON_ENV_CACHE_URL": str(tmp_path / "shared"),
        "NEURON_ENV_CACHE_LOCAL_DIR": str(tmp_path / "here"),
    }
    cold = _result(_start(settings, "gpt", "digits"))
    assert cold["compiles"] > 4
    for kind in ("gpt", "digits"):
        assert cold["losses"][kind] == pytest.approx(losses(kind, "cpu"), rel=1e-3)
        assert cold["losses"][kind][-1] != cold["losses"][kind][0]
    elsewhere = settings | {"NEURON_ENV_CACHE_LOCAL_DIR": str(tmp_path / "elsewhere")}
    for again in [_start(warm, "gpt", "digits") for warm in (settings, elsewhere)]:
        assert _result(again) == {"losses": cold["losses"], "compiles": 0}


@pytest.mark.fleet
@pytest.mark.timeout(400)
def test_eight_ranks_of_one_script_make_each_neff_once() -> None:
    with tempfile.TemporaryDirectory(prefix="nrt-") as place:
        host = DeviceHost(Path(place, "run"), Path(place, "cache"))
        settings = host.settings() | {"NEURON_ENV_INSTANCE_TYPE": "trn2.48xlarge"}
        try:
            ranks = [_start(settings | {"RANK": str(rank), "WORLD_SIZE": "8"}, "gpt") for rank in range(8)]
            results = [_result(rank) for rank in ranks]
            one = _result(_start(settings, "gpt"))
        finally:
            host.stop()
        entries = Path(place, "cache", "shared", "neuron-env-cache.v1", "entries")
        made = sum("torch-neuronx-lowering" not in path.read_text() for path in entries.rglob("*.json"))
    assert one["compiles"] == 0
    assert all(result["losses"] == one["losses"] for result in results)
    # No NEFF was compiled twice; recipes of eager operators are entries too.
    assert sum(result["compiles"] for result in results) == made > 4


def _start(settings: dict[str, str], *models: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), *models],
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _result(process: subprocess.Popen[str]) -> Any:
    try:
        output, errors = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    return json.loads(output.splitlines()[-1])
