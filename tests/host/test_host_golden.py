"""What `collect`, `pins check` and `doctor` say about each machine, in full.

After a wanted change: UPDATE_GOLDEN=1 pytest …
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from host_kit import HostTree
from situations import SITUATIONS

from cli.main import root
from neuron_runtime.host.host import Host

GOLDEN = Path(__file__).parent / "golden"

# Where there is something to find, and whether a computation on the device succeeds.
FITS = {"good_trn2", "good_trn3", "container_without_devices", "xla_build", "two_lnc", "simulated"}
USABLE = {"good_trn2", "good_trn3", "simulated"}


@pytest.fixture
def call(machine: Callable[[str], HostTree], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs `neuron-env ARGS` as if on that machine."""

    def run(situation: str, *args: str) -> Result:
        host = machine(situation).host()
        monkeypatch.setattr(Host, "here", classmethod(lambda cls: host))
        monkeypatch.chdir(host.root)
        return CliRunner().invoke(root, list(args), prog_name="neuron-env")

    return run


@pytest.mark.parametrize("situation", SITUATIONS)
def test_collect_as_json(situation: str, call: Callable[..., Result]) -> None:
    result = call(situation, "collect", "--json", "--probe-timeout", "30")
    document = json.loads(result.stdout)
    assert result.exit_code == (0 if situation in USABLE else 1)
    assert document["usable"] is (situation in USABLE)
    assert not any(probe["failed"] for probe in document["probes"].values())
    compare(GOLDEN / situation / "collect.json", _lines(_steady(document)))


@pytest.mark.parametrize("situation", SITUATIONS)
def test_collect_as_text(situation: str, call: Callable[..., Result]) -> None:
    result = call(situation, "collect", "--probe-timeout", "30")
    compare(GOLDEN / situation / "collect.txt", re.sub(r"(?m)^( +seconds +)\S+$", r"\1SECONDS", result.stdout))


@pytest.mark.parametrize("situation", SITUATIONS)
def test_pins_check(situation: str, call: Callable[..., Result]) -> None:
    result = call(situation, "pins", "check")
    assert result.exit_code == (0 if situation in FITS else 1), result.output
    compare(GOLDEN / situation / "pins.txt", result.stdout)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_doctor(situation: str, call: Callable[..., Result]) -> None:
    result = call(situation, "doctor")
    assert result.exit_code == (1 if "✗" in result.stdout else 0), result.output
    compare(GOLDEN / situation / "doctor.txt", result.stdout)


def compare(path: Path, text: str) -> None:
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def _steady(document: dict[str, Any]) -> dict[str, Any]:
    """Without what differs from run to run: durations, and who runs the tests."""
    document["probes"] = sorted(document["probes"])
    if document["sections"]["proof"]:
        document["sections"]["proof"]["seconds"] = "SECONDS"
    for cache in document["sections"]["caches"].values():
        if "owner" in cache:
            cache["owner"] = "UID"
    return document


def _lines(document: dict[str, Any], depth: int = 0) -> str:
    """JSON with a fact a line: short enough to be read."""
    inner = [
        f"{' ' * (depth + 1)}{json.dumps(key)}: "
        + (_lines(value, depth + 1) if isinstance(value, dict) and value and depth < 2 else json.dumps(value))
        for key, value in document.items()
    ]
    return "{\n" + ",\n".join(inner) + f"\n{' ' * depth}}}" + ("\n" if depth == 0 else "")
