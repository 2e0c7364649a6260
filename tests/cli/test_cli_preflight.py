"""neuron-env preflight: targets, outputs, exit codes, and files that are mended."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Invoke = Callable[..., Result]
BAD = b"import torch\r\nx = torch.zeros(2).cuda()\r\ny = x.double()\r\n"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_bytes(BAD)
    return Path("script.py")


def test_text_and_exit_codes(invoke: Invoke, script: Path) -> None:
    told = invoke("preflight", script)
    assert told.exit_code == 1
    assert "script.py:2:5: error: .cuda() [cuda-method]" in told.stdout
    assert "1 file: 1 errors, 1 warnings, 0 notes; 1 for --fix" in told.stdout
    assert invoke("preflight", script, "--ignore", "cuda-method").exit_code == 0
    assert invoke("preflight", script, "--ignore", "cuda-method", "--strict").exit_code == 1


def test_json_has_stable_keys(invoke: Invoke, script: Path) -> None:
    document = json.loads(invoke("preflight", script, "--json").stdout)
    assert document["schema_version"] == 1
    assert document["counts"] == {"error": 1, "warning": 1, "note": 0}
    first = document["findings"][0]
    assert (first["rule"], first["line"], first["column"], first["fixable"]) == ("cuda-method", 2, 5, True)


def test_sarif_has_the_shape_that_code_hosts_take(invoke: Invoke, script: Path) -> None:
    log = json.loads(invoke("preflight", script, "--sarif").stdout)
    assert (log["version"], log["$schema"][-16:]) == ("2.1.0", "sarif-2.1.0.json")
    (run,) = log["runs"]
    known = run["tool"]["driver"]["rules"]
    assert len(run["results"]) == 2
    for result in run["results"]:
        assert known[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note")
        assert result["message"]["text"]
        place = result["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"] == "script.py"
        region = place["region"]
        assert 1 <= region["startLine"] <= region["endLine"]
        assert 1 <= region["startColumn"] <= region["endColumn"]


def test_the_diff_applies_and_leaves_the_file_alone(invoke: Invoke, script: Path) -> None:
    script.write_bytes(BAD.replace(b"\r\n", b"\n")[:-1])
    diff = invoke("preflight", script, "--fix")
    assert b".cuda()" in script.read_bytes()
    subprocess.run(["git", "apply", "-"], input=diff.stdout_bytes, check=True, timeout=60)
    assert script.read_text() == 'import torch\nx = torch.zeros(2).to("neuron")\ny = x.double()'


def test_write_keeps_line_ends_and_mode(invoke: Invoke, script: Path) -> None:
    script.chmod(0o750)
    assert invoke("preflight", script, "--fix", "--write").exit_code == 0
    assert script.read_bytes() == BAD.replace(b".cuda()", b'.to("neuron")')
    assert script.stat().st_mode & 0o777 == 0o750


def test_modules_are_found_without_being_imported(invoke: Invoke, tmp_path: Path, script: Path) -> None:
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')\n")
    (package / "model.py").write_text("raise SystemExit('imported')\nimport deepspeed\n")
    told = invoke("preflight", "pack.model:factory")
    assert (told.exit_code, "[deepspeed]" in told.stdout) == (1, True)
    assert invoke("preflight", ".").stdout.splitlines()[-1].startswith("3 files:")


@pytest.mark.parametrize(
    "args", [[], ["nowhere.py"], ["none.such:factory"], ["script.py", "--write"], ["script.py", "--ignore", "x"],
             ["script.py", "--json", "--sarif"], [".", "--run"], ["script.py", "--run-args", "a"]],
)  # fmt: skip
def test_wrong_usage(invoke: Invoke, script: Path, args: list[str]) -> None:
    assert invoke("preflight", *args).exit_code == 2
