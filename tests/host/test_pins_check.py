"""Comparing: lists of packages, locks, traps that no made machine has, upgrades."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from host_kit import HostTree

from neuron_runtime.host.host import Host
from neuron_runtime.host.report import collect_host
from neuron_runtime.pins.catalog import load_catalog
from neuron_runtime.pins.check import Check, check_pins, nearest_set
from neuron_runtime.pins.errors import PinsError
from neuron_runtime.pins.finding import Severity
from neuron_runtime.pins.freeze import read_freeze
from neuron_runtime.pins.lock import lock_text, read_lock
from neuron_runtime.pins.observed import Observed, observe_report
from neuron_runtime.pins.upgrade import plan_upgrade

CATALOG = load_catalog()
NATIVE = {"torch": "2.14.0+cpu", "torch-neuronx": "2.14.3.0.7", "neuronx-cc": "2.28.7631.0", "nki": "0.7.0"}


def observed(packages: dict[str, str] | None = None, **facts: Any) -> Observed:
    return Observed(source="this host", python_packages=NATIVE if packages is None else packages, **facts)


def check(what: Observed, sdk: str | None = None, torch: str | None = None) -> Check:
    pins = CATALOG.pin_set(sdk, torch) if sdk or torch else nearest_set(what, CATALOG)[0]
    return check_pins(what, pins, "", CATALOG)


def ids(result: Check) -> set[str]:
    return {finding.id for finding in result.findings}


def test_freeze_of_every_common_form() -> None:
    text = """\
    # comment
    torch==2.14.0+cpu
    Torch_NeuronX==2.14.3.0.7  # via -r requirements.in
    neuronx-cc @ https://host/whl/neuronx_cc-2.28.7631.0%2Babc-py3-none-any.whl#sha256=00
    nki==0.7.0 \\
        --hash=sha256:00
    -e git+https://example.com/x.git#egg=x
    # Editable install with no version control (neuron-env==0.1.0)
    --extra-index-url https://pip.repos.neuron.amazonaws.com
    transformers>=5
    local @ file:///somewhere
    not a requirement at all !
    """
    found = read_freeze(text, "freeze.txt")
    assert found.python_packages == NATIVE | {"neuronx-cc": "2.28.7631.0+abc", "neuron-env": "0.1.0"}
    assert (found.torch_build, found.system_packages, found.build) == ("cpu", None, "native")
    assert check(found).ok


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([{"name": name, "version": version} for name, version in NATIVE.items()]),
        "Package       Version      Editable project location\n------------- -------\n"
        + "\n".join(f"{name:20} {version}" for name, version in NATIVE.items()),
    ],
    ids=["json", "columns"],
)
def test_pip_list_is_read_as_well(text: str) -> None:
    assert read_freeze(text, "-").python_packages == NATIVE


@pytest.mark.parametrize("text", ["", "# nothing\n", "transformers>=5\n", "[{}]", "PK\x03\x04 binary"])
def test_a_file_that_is_no_list_of_packages_is_refused(text: str) -> None:
    with pytest.raises(PinsError):
        read_freeze(text, "x.txt")


def test_a_list_of_packages_says_nothing_of_the_system() -> None:
    result = check(read_freeze("\n".join(f"{n}=={v}" for n, v in NATIVE.items()), "x"))
    assert result.ok
    assert {name for name, *_ in result.rows} == set(NATIVE)


@pytest.mark.parametrize(
    ("what", "trap"),
    [
        (observed(architecture="aarch64"), "architecture"),
        (observed(family="inf2"), "chip-not-supported"),
        (observed(NATIVE | {"torch-neuronx": "1.0"}), "placeholder-package"),
        (observed(NATIVE | {"torch-neuronx-sim": "2.13.0+sim"}), "simulated-and-real"),
        (observed(hidden={"nki": ("0.6.0 in /x",)}), "two-copies"),
        (observed(torch_build="cu130"), "torch-for-gpus"),
        (observed(NATIVE | {"torch": "2.13.0"}), "torch-does-not-fit"),
        (observed(python="3.11"), "no-wheel-for-python"),
        (observed(glibc="2.31"), "glibc-too-old"),
        (observed(system_packages={"aws-neuronx-runtime-lib": "2.35.30.0-x"}, driver="2.30.2.0"), "driver-too-old"),
        (observed(system_packages={"aws-neuronx-runtime-lib": "2.32.31.0"}, driver="2.29.0.0"), "runtime-too-old"),
        (observed(system_packages={}, driver_missing="not loaded"), "driver-missing"),
        (observed({name: version for name, version in NATIVE.items() if name != "nki"}), "missing:nki"),
        (observed(NATIVE | {"neuronx-cc": "2.27.5334.0"}), "version:neuronx-cc"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_trap_is_a_problem_with_a_remedy(what: Observed, trap: str) -> None:
    result = check(what)
    found = next(finding for finding in result.findings if finding.id == trap)
    assert not result.ok
    assert found.severity is Severity.PROBLEM
    assert found.consequence
    assert found.remedy


@pytest.mark.parametrize(
    ("what", "trap"),
    [
        (observed(distribution="ubuntu-24.04"), "no-wheel-for-system"),
        (observed(driver="2.30.2.0", driver_on_disk="2.31.7.0"), "driver-not-reloaded"),
        (observed(compiler="/usr/bin/neuronx-cc", prefix="/opt/venv"), "foreign-compiler"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_may_work_is_a_warning(what: Observed, trap: str) -> None:
    result = check(what)
    assert result.ok
    assert {finding.id: finding.severity for finding in result.findings}[trap] is Severity.WARNING


def test_a_good_host_has_no_findings() -> None:
    assert (
        ids(check(observed(python="3.14", distribution="ubuntu-26.04", glibc="2.43", family="trn2", torch_build="cpu")))
        == set()
    )


def test_an_unknown_fact_is_no_finding() -> None:
    xla = observed({"torch": "2.9.1", "torch-neuronx": "2.9.0.2.15.32035", "neuronx-cc": "2.28.7631.0"}, family="inf2")
    assert ids(check(xla, "2.33.0", "2.9")) == {"xla-build"}


def test_the_driver_inside_a_container_is_the_hosts_business() -> None:
    inside = observed(
        container=True,
        driver_missing="not here",
        system_packages={
            "aws-neuronx-runtime-lib": "2.35.30.0",
            "aws-neuronx-collectives": "2.35.43.0",
            "aws-neuronx-tools": "2.33.38.0",
        },
    )
    assert ids(check(inside)) == set()


def test_remedies_speak_the_package_manager_of_the_host() -> None:
    for distribution, words in (
        ("ubuntu-26.04", "apt-get install"),
        ("amzn-2023", "dnf install -y 'aws-neuronx-dkms >= 2.31'"),
    ):
        what = observed(
            system_packages={"aws-neuronx-runtime-lib": "2.35.30.0"}, driver="2.30.2.0", distribution=distribution
        )
        assert any(finding.id == "driver-too-old" and words in str(finding.remedy) for finding in check(what).findings)


@pytest.mark.parametrize(
    ("packages", "sdk", "torch"),
    [
        (NATIVE, "2.33.0", "2.14.0"),
        ({"torch": "2.13.0", "torch-neuronx": "2.13.3.0.1"}, "2.33.0", "2.13.0"),
        ({"torch-neuronx": "2.9.0.2.14.27725", "neuronx-cc": "2.25.3371.0"}, "2.30.0", "2.9"),
        ({"torch-neuronx": "2.9.0.2.15.32035", "neuronx-cc": "2.26.6360.0"}, "2.31.1", "2.9"),
        ({"torch-neuronx": "2.15.0.0.1"}, "2.33.0", "2.14.0"),
        ({"torch": "2.9.0", "neuronx-cc": "2.25.1"}, "2.33.0", "2.9"),
        ({}, "2.33.0", "2.14.0"),
    ],
)
def test_the_nearest_set_is_chosen(packages: dict[str, str], sdk: str, torch: str) -> None:
    pins, reason = nearest_set(observed(packages), CATALOG)
    assert (pins.release.sdk, pins.build.torch) == (sdk, torch)
    assert reason.startswith("the nearest set: ")


def test_a_lock_says_what_the_catalog_says(tmp_path: Path) -> None:
    path = tmp_path / "neuron-env.lock"
    for pins in CATALOG.pin_sets():
        path.write_text(lock_text(pins))
        read = read_lock(path, CATALOG)
        assert (read.python, read.system, read.constraints()) == (pins.python, pins.system, pins.constraints())
        assert (read.build.python, read.build.families, read.build.wheels) == (
            pins.build.python,
            pins.build.families,
            pins.build.wheels,
        )
        assert read.release.requires == pins.release.requires
        assert lock_text(read) == lock_text(pins)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("schema = 1", "schema = 2"), "has schema 2, not 1"),
        (('nki = "0.7.0"', "nki = 7"), "pins nki to 7"),
        (('nki = "0.7.0"', 'nki = "latest"'), "pins nki to 'latest'"),
        (("[python-packages]", "[packages]"), "has no table [python-packages]"),
        (('build = "native"', 'build = "cuda"'), "names no build"),
        (('families = ["trn2", "trn3"]', "families = 2"), "`families` is no list"),
        (("schema = 1", "schema"), "is no TOML"),
    ],
)
def test_a_lock_that_was_edited_is_refused(tmp_path: Path, change: tuple[str, str], complaint: str) -> None:
    path = tmp_path / "neuron-env.lock"
    text = lock_text(CATALOG.newest)
    assert change[0] in text
    path.write_text(text.replace(*change))
    with pytest.raises(PinsError) as raised:
        read_lock(path, CATALOG)
    assert complaint in str(raised.value)


def test_an_image_is_compared_without_its_driver(machine: Callable[[str], HostTree]) -> None:
    root = machine("container_without_devices").root
    report = collect_host(Host.image(root), proof=False)
    what = observe_report(report, "the image", image=True)
    result = check(what)
    assert what.container
    assert what.family is None
    assert result.ok
    assert {name for name, *_ in result.rows} >= {"torch-neuronx", "aws-neuronx-runtime-lib"}


def test_an_upgrade_names_what_follows_and_puts_the_driver_first() -> None:
    plan = plan_upgrade(CATALOG.pin_set("2.31.1"), CATALOG.pin_set("2.33.0"), CATALOG)
    changes = {change.component: (change.before, change.after, change.direction) for change in plan.changes}
    assert changes["aws-neuronx-dkms"] == ("2.29.0.0", "2.31.7.0", "up")
    assert changes["torch-neuronx"] == ("2.9.0.2.15.32035", "2.14.3.0.*", "up")
    assert changes["nrtpy"][2] == "new"
    assert "aws-neuronx-dkms=2.31.7.0" in plan.commands[0]
    uninstall = next(number for number, command in enumerate(plan.commands) if " uninstall " in command)
    install = next(number for number, command in enumerate(plan.commands) if "torch-neuronx==2.14" in command)
    assert uninstall < install
    assert any("needs aws-neuronx-dkms 2.31" in text for text in plan.consequences)
    assert any("compiled anew" in text for text in plan.consequences)


def test_an_upgrade_to_the_same_changes_nothing() -> None:
    plan = plan_upgrade(CATALOG.newest, CATALOG.newest, CATALOG)
    assert (plan.changes, plan.commands) == ((), ())
