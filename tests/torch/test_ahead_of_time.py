"""Programs compiled ahead of time: torch.export's files, several shapes, and `torch_neuronx.trace`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from device_kit import DeviceHost

pytestmark = pytest.mark.torch


def compile_(host: DeviceHost, cwd: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", "compile", *arguments],
        env={**os.environ, **host.settings(), "NO_COLOR": "1"},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    import torch

    module = torch.nn.Linear(8, 4).eval()
    batch = torch.export.Dim("batch", min=1, max=64)
    exported = torch.export.export(module, (torch.randn(2, 8),), dynamic_shapes=({0: batch},))
    torch.export.save(exported, tmp_path / "line.pt2")
    (tmp_path / "shapes.toml").write_text('shapes = ["3x8", "5x8"]')
    (tmp_path / "line.py").write_text(
        "import torch\ndef line():\n    return torch.nn.Linear(8, 4).eval(), (torch.randn(2, 8),)\n"
    )
    return tmp_path


def test_an_exported_program_and_a_factory_share_neffs_shape_by_shape(device_host: DeviceHost, saved: Path) -> None:
    made = json.loads(compile_(device_host, saved, "line.pt2", "--shape", "3x8", "--shape", "5x8", "--json").stdout)
    keys = [program["key"] for program in made["programs"]]
    assert [program["outcome"] for program in made["programs"]] == ["compiled", "compiled"]
    assert len(set(keys)) == 2
    again = json.loads(compile_(device_host, saved, "line.py:line", "--shapes", "shapes.toml", "--json").stdout)
    assert [(p["key"], p["outcome"]) for p in again["programs"]] == [(key, "local_hit") for key in keys]


def test_bad_shapes_and_files_are_told(device_host: DeviceHost, saved: Path) -> None:
    (saved / "bad.pt2").write_text("no zip")
    for arguments, what in (
        (("bad.pt2",), "`bad.pt2` is no program of torch.export"),
        (("line.pt2", "--shape", "3,x"), "`3,x` is no shape"),
        (("line.pt2", "--shape", "3"), "has 1 dimensions, the input 2"),
    ):
        assert what in compile_(device_host, saved, *arguments, code=1).stderr


def test_a_traced_module_gives_the_cpus_results(neuron: Any) -> None:
    import torch

    import torch_neuronx

    module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 3)).eval()
    traced = torch_neuronx.trace(module, torch.randn(4, 8))
    given = torch.randn(4, 8)
    torch.testing.assert_close(traced(given), module(given).detach(), rtol=1e-4, atol=1e-5)
    with pytest.raises(torch_neuronx.InputMismatchError):
        traced(torch.randn(5, 8))
