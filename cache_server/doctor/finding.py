"""One thing that is wrong: what, where, and what can be done about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

_SHOWN = 5  # places that a person is shown


class Weight(StrEnum):
    """How bad it is. An ERROR loses work or gives wrong results, a WARNING may, a NOTE is worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """`kind` is a stable word for programs. `mend` undoes it at one of the places and is safe beside running jobs.

    `mend` raises OSError where it may not, and returns False where somebody changed the place meanwhile.
    """

    kind: str
    weight: Weight
    text: str
    places: tuple[Path, ...] = ()
    hint: str = ""
    mend: Callable[[Path], bool] | None = None

    @property
    def shown(self) -> list[str]:
        more = len(self.places) - _SHOWN
        return [*map(str, self.places[:_SHOWN]), *([f"… and {more} more"] if more > 0 else [])]

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "weight": self.weight.value,
            "text": self.text,
            "places": [str(place) for place in self.places],
            "hint": self.hint or None,
            "can_be_mended": self.mend is not None,
        }


def mend_all(findings: Iterable[Finding]) -> list[tuple[Finding, int, list[str]]]:
    """Mends what can be: each finding with the number of places mended, and why the others were not."""
    done = []
    for finding in findings:
        if finding.mend is None:
            continue
        mended, failed = 0, []
        for place in finding.places:
            try:
                mended += finding.mend(place)
            except OSError as error:
                failed.append(f"{place}: {error.strerror or error}")
        done.append((finding, mended, failed))
    return done
