"""neuron-env neff: what people and programs get to see."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from neuron_runtime.neff import NeffHeader, read_neff

Invoke = Callable[..., Result]


def test_info_says_that_a_neff_is_simulated(invoke: Invoke, neff_file: Path) -> None:
    result = invoke("neff", "info", neff_file)
    assert result.exit_code == 0
    assert "SIMULATED" in result.stdout
    assert "no hardware can load it" in result.stdout
    assert "trn2, -O1" in result.stdout
    assert result.stderr == ""
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["input", "x", "float32", "2×3", "24"] in rows
    assert ["output", "y", "float32", "2×3", "24"] in rows


def test_info_says_that_a_foreign_neff_is_not_simulated(invoke: Invoke, tmp_path: Path, neff_file: Path) -> None:
    import gzip
    import hashlib
    import io
    import tarfile
    from dataclasses import replace

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("neff.json"))
    content = gzip.compress(buffer.getvalue())
    header = replace(
        read_neff(neff_file).header, data_size=len(content), hash=hashlib.sha256(content).digest(), name="hw"
    )
    path = tmp_path / "hw.neff"
    path.write_bytes(header.pack() + content)
    result = invoke("neff", "info", path)
    assert result.exit_code == 0
    assert "not made by neuron-env" in result.stdout
    assert "SIMULATED" not in result.stdout
    document = json.loads(invoke("neff", "info", path, "--json").stdout)
    assert document["simulated"] is False
    assert document["manifest"] is None


def test_info_as_json_is_one_document_with_stable_keys(invoke: Invoke, neff_file: Path) -> None:
    result = invoke("neff", "info", neff_file, "--json")
    document = json.loads(result.stdout)
    assert result.stdout.count("\n") == 1
    assert list(document) == [
        "schema_version",
        "file",
        "simulated",
        "size",
        "unpacked_size",
        "member_count",
        "header",
        "manifest",
    ]
    assert document["schema_version"] == 1
    assert document["simulated"] is True
    assert document["size"] == neff_file.stat().st_size
    assert document["header"]["name"] == "block"
    assert document["manifest"]["inputs"] == [{"name": "x", "shape": [2, 3], "dtype": "float32"}]


def test_ls_in_each_mode(invoke: Invoke, neff_file: Path) -> None:
    assert invoke("neff", "ls", neff_file).stdout.splitlines()[-1].split() == ["15", "sg00/module.stablehlo"]
    assert invoke("neff", "ls", neff_file, "--quiet").stdout == (
        "manifest.json\nnative/xla_cpu.bin\nsg00/module.stablehlo\n"
    )
    document = json.loads(invoke("neff", "ls", neff_file, "--json").stdout)
    assert document["members"][1] == {"name": "native/xla_cpu.bin", "size": 256}


def test_ls_refuses_two_modes_at_once(invoke: Invoke, neff_file: Path) -> None:
    result = invoke("neff", "ls", neff_file, "--json", "-q")
    assert result.exit_code == 2
    assert "exclude each other" in result.stderr
    assert result.stdout == ""


def test_unpack_chooses_a_folder_by_the_files_name(invoke: Invoke, neff_file: Path) -> None:
    result = invoke("neff", "unpack", neff_file)
    assert result.exit_code == 0
    target = neff_file.with_suffix("")
    assert result.stdout.endswith(f"into: {target}\n")
    assert (target / "sg00" / "module.stablehlo").read_bytes() == b"module @main {}"


def test_unpack_into_a_given_folder_and_never_over_anything(invoke: Invoke, neff_file: Path, tmp_path: Path) -> None:
    target = tmp_path / "here"
    document = json.loads(invoke("neff", "unpack", neff_file, target, "--json").stdout)
    assert document["directory"] == str(target)
    assert set(document["members"]) == {str(p.relative_to(target)) for p in target.rglob("*") if p.is_file()}
    again = invoke("neff", "unpack", neff_file, target)
    assert again.exit_code == 1
    assert "is not empty" in again.stderr
    assert "\nhint: " in again.stderr


def test_verify_passes_a_good_file(invoke: Invoke, neff_file: Path) -> None:
    result = invoke("neff", "verify", neff_file)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1].endswith("checks passed")
    assert "✗" not in result.stdout


def test_verify_prints_every_failed_check_and_exits_1(invoke: Invoke, neff_file: Path) -> None:
    data = bytearray(neff_file.read_bytes())
    data[0x228] = 9
    data[-1] ^= 1
    neff_file.write_bytes(bytes(data))
    result = invoke("neff", "verify", neff_file)
    assert result.exit_code == 1
    failed = [line for line in result.stdout.splitlines() if line.startswith("✗")]
    assert any("lnc_size: 9, expected 0, 1 or 2" in line for line in failed)
    assert any("hash" in line for line in failed)
    assert "checks failed" in result.stdout.splitlines()[-1]
    document = json.loads(invoke("neff", "verify", neff_file, "--json").stdout)
    assert document["ok"] is False
    assert {check["field"] for check in document["checks"] if not check["ok"]} >= {"lnc_size", "hash"}
    assert invoke("neff", "verify", neff_file, "--json").exit_code == 1


@pytest.mark.parametrize("command", ["info", "ls", "unpack", "verify"])
def test_a_file_that_is_no_neff_or_not_there(invoke: Invoke, command: str, tmp_path: Path) -> None:
    missing = invoke("neff", command, tmp_path / "missing.neff")
    assert missing.exit_code == 1
    assert missing.stderr.startswith("error: cannot read")
    assert "\n\nhint: " in missing.stderr
    assert missing.stdout == ""
    junk = tmp_path / "junk.neff"
    junk.write_bytes(b"junk")
    assert invoke("neff", command, junk).exit_code == 1


def test_a_hostile_name_cannot_drive_the_terminal(invoke: Invoke, neff_file: Path) -> None:
    data = bytearray(neff_file.read_bytes())
    data[0xDC:0xE1] = b"\x1b[2J\0"
    neff_file.write_bytes(bytes(data))
    for command in ("info", "verify"):
        result = invoke("neff", command, neff_file)
        assert result.exit_code == 1
        assert "\x1b" not in result.output
    assert NeffHeader.unpack(bytes(data)).name == "\\x1b[2J"


@pytest.mark.parametrize("command", ["info", "ls", "unpack", "verify"])
def test_each_command_gives_examples(invoke: Invoke, command: str) -> None:
    result = invoke("neff", command, "-h")
    assert result.exit_code == 0
    assert f"neuron-env neff {command} " in result.stdout
    assert "..." not in invoke("neff", "--help").stdout.partition("Commands:")[2]
