"""One thing that pins have to say about a host."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Severity(StrEnum):
    PROBLEM = "problem"  # something will not work, or is not what was asked for
    WARNING = "warning"  # it may work
    NOTE = "note"  # worth knowing


@dataclass(frozen=True, slots=True)
class Finding:
    """What differs, with what follows from it and what to type.

    id: stable, such as `driver-too-old` or `version:nki`
    found: None where it is not there at all
    """

    id: str
    severity: Severity
    component: str
    found: str | None
    expected: str
    consequence: str
    remedy: str | None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
