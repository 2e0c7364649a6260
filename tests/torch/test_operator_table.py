"""The command that examines PyTorch's operators on the device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from device_kit import DeviceHost

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")
pytestmark = pytest.mark.torch


def run(host: DeviceHost, results: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch_neuronx.operator_table", "--results", str(results), "--workers", "1"]
    return subprocess.run(
        [*command, *arguments],
        env={**os.environ, **host.settings()},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def test_three_operators_become_a_table_and_are_not_run_twice(device_host: DeviceHost, tmp_path: Path) -> None:
    results, table = tmp_path / "results.jsonl", tmp_path / "table.md"
    arguments = ("--ops", "hypot,nonzero,linalg.eigvalsh", "--dtypes", "float32", "--samples", "1")
    done = run(device_host, results, *arguments, "--markdown", str(table))
    assert done.returncode == 0, done.stderr
    found = {line["case"]["name"]: line["verdict"] for line in map(json.loads, results.read_text().splitlines())}
    assert set(found) == {"hypot", "nonzero", "linalg.eigvalsh"}
    text = table.read_text()
    assert "| hypot | compiled |  |  | compiled |  |  |" in text
    assert "| nonzero | host |" in text
    assert "| linalg.eigvalsh | fell back |" in text
    assert "`_linalg_eigh" in text
    before = results.read_bytes()
    assert run(device_host, results, *arguments).returncode == 0
    assert results.read_bytes() == before


def test_a_worker_that_dies_or_hangs_is_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch_neuronx.operator_table import survey
    from torch_neuronx.operator_table.case import Case, Verdict

    case = Case("add", "float32", False)
    for program, seconds, verdict in (
        ("print('ready', flush=True); input(); import os; os.abort()", 60.0, Verdict.CRASHED),
        ("print('ready', flush=True); input(); input()", 0.2, Verdict.HUNG),
    ):
        monkeypatch.setattr(survey, "COMMAND", [sys.executable, "-c", program])
        worker = survey.Worker()
        assert worker.examine(case, survey.Options(1, seconds, 1)).verdict is verdict
        assert not worker.alive


def test_unknown_operators_and_dtypes_are_refused(device_host: DeviceHost, tmp_path: Path) -> None:
    done = run(device_host, tmp_path / "results", "--ops", "no_such_operator")
    assert done.returncode == 2
    assert "no operator of the database is called no_such_operator" in done.stderr
