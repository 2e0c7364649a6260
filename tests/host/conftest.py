"""Machines made for a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from host_kit import HostTree
from situations import SITUATIONS


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is not what these tests are about."""
    monkeypatch.setattr("neuron_runtime.host.report.PROBE_S", 30.0)


@pytest.fixture
def machine(tmp_path: Path) -> Callable[[str], HostTree]:
    """Makes the machine of that situation."""
    return lambda situation: SITUATIONS[situation](tmp_path / "root")
