"""neuron-env preflight --run, and that what --fix writes runs on the device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from device_kit import DeviceHost

SCRIPT = """
import torch
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
x = torch.ones(2, 2).to(device)
print(torch.nonzero(x + x).cpu().shape)
"""


def preflight(host: DeviceHost, *args: str | Path) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "cli.main", "preflight", *map(str, args), "--json"],
        env={**os.environ, **host.settings()}, capture_output=True, timeout=110, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_mended_script_runs_on_the_device_and_its_fallbacks_are_found(
    device_host: DeviceHost, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    status, document = preflight(device_host, script, "--fix", "--write", "--run")
    found = {it["rule"]: it["what"] for it in document["findings"]}
    assert status == 0, document
    assert found["run-fallback"] == "`aten::nonzero` ran on the host once"
    assert "run-unused" not in found


def test_a_failing_script_is_found_with_its_line(device_host: DeviceHost, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import sys\nassert sys.argv[1:] == ['a b']\nraise ValueError('no')\n")
    status, document = preflight(device_host, script, "--run", "--run-args", "'a b'")
    (found,) = document["findings"]
    assert (status, found["rule"], found["line"], found["what"]) == (1, "run-failed", 3, "ValueError: no")


def test_a_hanging_script_is_ended(device_host: DeviceHost, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import signal\nsignal.pause()\n")
    status, document = preflight(device_host, script, "--run", "--run-timeout", "2")
    assert status == 1
    assert "still running after 2 s" in document["findings"][0]["what"]
