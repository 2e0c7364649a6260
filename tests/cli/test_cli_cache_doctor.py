"""The command around the examination: where it looks, what it prints, how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


@pytest.fixture
def sick(tmp_path: Path, neff_file: Path) -> Path:
    root = tmp_path / "neff_cache"
    for key in ("a" * 32, "b" * 32):
        file = root / key[:2] / key[2:4] / f"{key}.neff"
        file.parent.mkdir(parents=True)
        file.write_bytes(neff_file.read_bytes() if key[0] == "a" else b"")
        file.chmod(0o644)
    return root


def test_findings_are_told_and_mended(invoke, sick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_NEFF_CACHE_DIR", str(sick))
    monkeypatch.setenv("TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR", str(sick.parent))
    result = invoke("cache", "doctor", "--json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert str(sick) in document["looked_into"]
    empty = next(it for it in document["findings"] if it["kind"] == "empty")
    assert (empty["can_be_mended"], empty["mended"]) == (True, False)
    result = invoke("cache", "doctor", "--fix")
    assert "empty: mended 1 of 1" in result.stdout
    assert "empty NEFFs, as a full disk leaves them: 1" in result.stdout
    assert not list(sick.glob("bb/bb/*"))
    again = json.loads(invoke("cache", "doctor", "--json").stdout)
    assert not [it for it in again["findings"] if it["kind"] == "empty"]


def test_a_directory_that_is_not_there_is_an_error(invoke, tmp_path: Path) -> None:
    result = invoke("cache", "doctor", "--dir", tmp_path / "nowhere")
    assert result.exit_code == 1
    assert "is not a directory" in result.stderr
