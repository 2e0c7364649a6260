"""The catalog: its shape, its cross-references, and that a release is added by a file alone."""

from __future__ import annotations

import datetime
import itertools
import shutil
from pathlib import Path

import pytest

from neuron_runtime.pins.catalog import DATA, load_catalog
from neuron_runtime.pins.errors import PinsError
from neuron_runtime.pins.lock import lock_text
from neuron_runtime.pins.pinset import NEEDED_SYSTEM
from neuron_runtime.pins.versions import matches, order, series

RELEASE = """
schema = 1
sdk = "2.40.0"
date = 2027-05-01
source = "docs"

[[component]]
name = "aws-neuronx-dkms"
kind = "system"
versions = ["2.40.1.0"]
source = "docs"

[[component]]
name = "neuronx-cc"
kind = "python"
versions = ["2.35.1.0"]
source = "docs"

[[build]]
kind = "native"
torch = "2.16.0"
torch-neuronx = "2.16.4.0.*"
python = ["3.13"]
sources = { torch = "docs", torch-neuronx = "docs", python = "docs" }
"""


GHOST = """
[[requires]]
component = "aws-neuronx-dkms"
version = "2.40.*"
needs = "ghost"
at_least = "1"
source = "docs"

[[build]]"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A copy of the data, to be changed."""
    return Path(shutil.copytree(DATA, tmp_path / "data"))


def test_the_catalog_holds_the_releases_that_are_known() -> None:
    catalog = load_catalog()
    assert [r.sdk for r in catalog.releases] == ["2.30.0", "2.31.0", "2.31.1", "2.32.0", "2.33.0", "2.33.1"]
    assert catalog.newest.name == "SDK 2.33.0 with torch 2.14.0"
    assert catalog.release("2.31.1").date == datetime.date(2026, 8, 12)
    assert not catalog.release("2.33.1").components


def test_every_release_that_is_known_names_driver_runtime_compiler_and_nki() -> None:
    for release in load_catalog().releases:
        if release.components:
            for name in (*NEEDED_SYSTEM, "aws-neuronx-tools", "neuronx-cc", "nki"):
                component = release.component(name)
                assert component is not None, (release.sdk, name)
                assert len(component.versions) == 1
                assert component.kind == ("system" if name.startswith("aws-") else "python")


def test_components_never_get_older() -> None:
    releases = [release for release in load_catalog().releases if release.components]
    for before, after in itertools.pairwise(releases):
        for name in NEEDED_SYSTEM:
            old, new = before.component(name), after.component(name)
            assert old is not None
            assert new is not None
            assert order(old.versions[0]) <= order(new.versions[0])
        assert before.date is not None
        assert after.date is not None
        assert before.date < after.date


def test_a_release_meets_its_own_requirements() -> None:
    for release in load_catalog().releases:
        for needed in release.requires:
            component, minimum = release.component(needed.component), release.component(needed.needs)
            assert component is not None
            assert minimum is not None
            assert matches(component.versions[0], needed.version)
            assert order(minimum.versions[0]) >= order(needed.minimum)


def test_builds_are_sound() -> None:
    for pins in load_catalog().pin_sets():
        assert pins.build.kind == ("native" if order(pins.build.torch) >= order("2.13") else "xla")
        assert series(pins.build.torch) == series(pins.build.torch_neuronx)
        assert all(family[:3] in ("trn", "inf") for family in pins.build.families or ())
        assert set(pins.needed_python) >= {"torch", "torch-neuronx", "neuronx-cc"}
        assert not set(pins.open) & set(pins.python)


def test_a_release_is_added_by_a_file_alone(data: Path) -> None:
    (data / "2.40.0.toml").write_text(RELEASE)
    catalog = load_catalog(data)
    assert catalog.newest.name == "SDK 2.40.0 with torch 2.16.0"
    assert 'torch-neuronx = "2.16.4.0.*"' in lock_text(catalog.pin_set(None, "2.16"))
    assert catalog.pin_set("2.33.0", "2.13").build.torch == "2.13.0"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("schema = 1", "schema = 9"), "schema 9 is not 1"),
        (('sdk = "2.40.0"', 'sdk = "2.41.0"'), "describes SDK 2.41.0"),
        (('source = "docs"\n\n[[component]]', 'source = "hearsay"\n\n[[component]]'), "no such source: 'hearsay'"),
        (("date = 2027-05-01", 'date = "soon"'), "`date` is not a date"),
        (('versions = ["2.40.1.0"]', "versions = []"), "`versions` is no list of texts"),
        (('versions = ["2.40.1.0"]', 'versions = ["new"]'), "not a version: 'new'"),
        (('kind = "system"', 'kind = "rpm"'), "kind is system or python"),
        (('name = "neuronx-cc"\nkind = "python"', 'name = "aws-neuronx-dkms"\nkind = "system"'), "listed twice"),
        (('torch = "2.16.0"', 'torch = "2.17.0"'), "do not fit"),
        ((', python = "docs" }', " }"), "names no source for 'python'"),
        (('python = ["3.13"]', 'pythons = ["3.13"]'), "unknown key 'pythons'"),
        (
            (
                "[[build]]",
                GHOST,
            ),
            "about ghost",
        ),
        (("schema = 1", "schema = "), "Invalid value"),
    ],
)
def test_wrong_data_is_refused(data: Path, change: tuple[str, str], complaint: str) -> None:
    text = RELEASE.replace(*change, 1)
    assert text != RELEASE
    (data / "2.40.0.toml").write_text(text)
    with pytest.raises(PinsError, match=r"2\.40\.0\.toml") as raised:
        load_catalog(data)
    assert complaint in str(raised.value)


def test_what_is_asked_for_and_not_there_is_explained() -> None:
    catalog = load_catalog()
    for sdk, torch, message in (
        ("2.99.0", None, "SDK 2.99.0 is not in the catalog"),
        ("2.33.1", None, "the component versions of SDK 2.33.1 are not known"),
        ("2.32.0", "2.12", "SDK 2.32.0 has no torch-neuronx"),
        ("2.33.0", "2.12", "SDK 2.33.0 has no torch-neuronx for torch 2.12"),
        (None, "2.12", "no release has a torch-neuronx for torch 2.12"),
    ):
        with pytest.raises(PinsError) as raised:
            catalog.pin_set(sdk, torch)
        assert str(raised.value) == message
        assert raised.value.hint


@pytest.mark.parametrize(
    ("version", "pin", "same"),
    [
        ("2.35.30.0-4b6f7a1c2", "2.35.30.0", True),
        ("1:2.35.30.0-1ubuntu2", "2.35.30.0", True),
        ("2.28.7631.0+a1b2", "2.28.7631.0", True),
        ("2.14.3.0.1523", "2.14.3.0.*", True),
        ("2.14.4.0.1", "2.14.3.0.*", False),
        ("2.9.1+cpu", "2.9", True),
        ("2.10.0", "2.9", False),
        ("2.35.3.0", "2.35.30.0", False),
        ("unreadable", "2.9", False),
    ],
)
def test_installed_versions_are_compared_as_their_tools_write_them(version: str, pin: str, same: bool) -> None:
    assert matches(version, pin) is same
