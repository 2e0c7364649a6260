"""The files of docs/fleet.md hold for their formats' own validators, and the Slurm scripts never fail a node."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

FLEET = Path(__file__).parents[2] / "examples" / "fleet"
SCRIPTS = sorted((FLEET / "slurm").glob("*.s*"))


@pytest.mark.parametrize("path", sorted((FLEET / "eks").glob("*.yaml")), ids=lambda p: p.name)
def test_kubernetes_takes_the_manifests(path: Path) -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    documents = list(yaml.safe_load_all(path.read_text()))
    assert documents
    for document in documents:
        validator.validate(document, validator.latest_version(), strict=True)


@pytest.mark.skipif(shutil.which("cfn-lint") is None, reason="cfn-lint is not on PATH")
def test_cloudformation_takes_the_task() -> None:
    run = subprocess.run(["cfn-lint", FLEET / "ecs" / "job.yaml"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not on PATH")
def test_shellcheck_finds_nothing() -> None:
    run = subprocess.run(
        ["shellcheck", "-x", *SCRIPTS], cwd=FLEET / "slurm", capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    text = (FLEET / "systemd" / "neuron-env-cache.service").read_text()
    unit = tmp_path / "neuron-env-cache.service"
    unit.write_text(re.sub(r"(?m)^ExecStart=.*", "ExecStart=/bin/true", text))
    run = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize("name", ["prolog.sh", "epilog.sh", "task_prolog.sh"])
def test_a_node_without_settings_is_not_drained(name: str, tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "NEURON_FLEET_FILE": str(tmp_path / "none"), "SLURM_JOB_NAME": "j"}
    assert subprocess.run(["bash", FLEET / "slurm" / name], env=env, capture_output=True, check=False).returncode == 0
