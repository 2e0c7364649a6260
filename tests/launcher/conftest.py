from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from launcher_kit import Host


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path / "host")
    yield host
    host.stop()
