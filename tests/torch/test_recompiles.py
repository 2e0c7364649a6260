"""`neuron-env recompiles`: what a script compiled, and why, without a change to the script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from device_kit import DeviceHost

pytestmark = pytest.mark.torch

SCRIPT = """
import sys
import torch

@torch.compile(backend="neuron")
def double(x):
    y = x * 2
    torch._dynamo.graph_break()
    return y + 1

for size in (4, 8):
    double(torch.ones(size, device="neuron"))
print("asked for", sys.argv[1:])
sys.exit(3)
"""


def recompiles(host: DeviceHost, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cli.main", "recompiles", *arguments],
        env={**os.environ, **host.settings(), "NO_COLOR": "1"},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def test_a_script_is_reported_with_every_recompile_and_break(device_host: DeviceHost, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = recompiles(device_host, "--json", "--html", "page.html", "script.py", "--steps", "2", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "asked for ['--steps', '2']" in done.stderr
    document = json.loads(done.stdout)
    assert (document["schema_version"], document["exit_status"]) == (1, 3)
    assert document["command"] == ["script.py", "--steps", "2"]
    places = {entry["place"] for entry in document["graph_breaks"]}
    assert len(places) == 1
    assert places.pop().endswith("script.py:8")
    assert all("graph_break" in entry["reason"] for entry in document["graph_breaks"])
    assert any("expected 4, actual 8" in entry["recompile_reason"] for entry in document["recompiles"])
    assert {entry["function"] for entry in document["recompiles"]} >= {"double"}
    assert len(document["graphs"]) == 4
    page = (tmp_path / "page.html").read_text()
    assert "expected 4, actual 8" in page
    assert "script.py:8" in page


def test_a_script_that_is_not_there_is_an_error(device_host: DeviceHost, tmp_path: Path) -> None:
    done = recompiles(device_host, "nothing.py", cwd=tmp_path)
    assert done.returncode == 1
    assert "there is no file `nothing.py`" in done.stderr
