"""Checks that crash, hang and mend, and those of caches."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from host_kit import HostTree

from cli.main import root
from neuron_runtime.doctor.check import Check, Result, SkippedError, Status, Subject, run_checks
from neuron_runtime.host.host import Host
from neuron_runtime.host.report import collect_host


@pytest.fixture
def subject(machine: Callable[[str], HostTree]) -> Subject:
    host = machine("good_trn2").host()
    return Subject(host, collect_host(host, proof=False))


def doctor(*args: str) -> Any:
    result = CliRunner().invoke(root, ["doctor", *args, "--json"], prog_name="neuron-env")
    return result.exit_code, {check["id"]: check for check in json.loads(result.stdout)["checks"]}


def test_a_check_that_crashes_or_hangs_is_a_problem_and_the_others_go_on(subject: Subject) -> None:
    def crash(_: Subject) -> str:
        raise ZeroDivisionError("oh")

    def skip(_: Subject) -> str:
        raise SkippedError("not here")

    ended = threading.Event()
    checks = [
        Check("crashes", "", crash),
        Check("hangs", "", lambda _: str(ended.wait(60)), limit=0.2),
        Check("skips", "", skip),
        Check("passes", "", lambda _: "fine"),
    ]
    found = {result.id: result for result in run_checks(checks, subject)}
    ended.set()
    assert [found[check.id].status for check in checks] == [
        Status.PROBLEM, Status.PROBLEM, Status.SKIPPED, Status.OK,
    ]  # fmt: skip
    assert "ZeroDivisionError: oh" in found["crashes"].found
    assert "timed out after 0.2 s" in found["hangs"].found


def test_a_logical_core_size_that_nobody_else_has_is_found(machine: Callable[[str], HostTree]) -> None:
    from neuron_runtime.doctor.hardware import lnc

    tree = machine("good_trn2")
    tree.variables["NEURON_LOGICAL_NC_CONFIG"] = "1"
    host = tree.host()
    found = lnc(Subject(host, collect_host(host, proof=False)))
    assert isinstance(found, Result)
    assert found.status is Status.PROBLEM
    assert "NEURON_LOGICAL_NC_CONFIG says 1, the devices say 2" in found.found


def test_names_of_checks_choose_and_wrong_ones_are_refused() -> None:
    code, checks = doctor("variables", "lnc")
    assert (code, set(checks)) == (0, {"variables", "lnc"})
    result = CliRunner().invoke(root, ["doctor", "dsik"], prog_name="neuron-env")
    assert result.exit_code == 2
    assert "no such check: dsik" in result.output


def test_a_cache_that_does_not_answer_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_ENV_CACHE_URL", "http://127.0.0.1:9")
    code, checks = doctor("shared-cache", "clock")
    assert code == 1
    assert "http://127.0.0.1:9" in checks["shared-cache"]["found"]
    assert checks["shared-cache"]["remedy"]
    assert checks["clock"]["status"] == "skipped"


def test_a_directory_whose_leases_exclude_is_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shared").mkdir()
    monkeypatch.setenv("NEURON_ENV_CACHE_URL", str(tmp_path / "shared"))
    code, checks = doctor("shared-cache")
    assert (code, checks["shared-cache"]["status"]) == (0, "ok")


def test_what_is_safe_to_mend_is_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "abcd" + "0" * 28
    empty = tmp_path / "neff" / "ab" / "cd" / f"{key}.neff"
    empty.parent.mkdir(parents=True)
    empty.touch()
    monkeypatch.setenv("TORCH_NEURONX_NEFF_CACHE_DIR", str(tmp_path / "neff"))
    _, checks = doctor("vendor-caches")
    assert "empty" in checks["vendor-caches"]["found"]
    assert "--fix" in checks["vendor-caches"]["remedy"]
    _, checks = doctor("vendor-caches", "--fix")
    assert "mended 1 of 1" in checks["vendor-caches"]["mended"]
    assert not empty.exists()


def test_this_machine_is_looked_at() -> None:
    assert Host.here().live
    _, checks = doctor()
    assert not any("the check itself failed" in check["found"] for check in checks.values())
