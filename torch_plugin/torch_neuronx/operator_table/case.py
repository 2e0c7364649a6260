"""What one row of the survey is about, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

DTYPES = ("float32", "bfloat16", "int64")


class Verdict(StrEnum):
    """Of several samples the case has the worst; here from best to worst."""

    COMPILED = "compiled"
    HOST = "host"  # sizes or control flow depend on values: no static graph can exist
    FELL_BACK = "fell back"
    WRONG = "wrong"
    FAILED = "failed"  # raised on the device what the CPU did not raise
    CRASHED = "crashed"
    HUNG = "hung"
    SKIPPED = "skipped"  # no sample that the CPU runs and the device can hold


SEVERITY = list(Verdict)[:-1]


@dataclass(frozen=True, order=True)
class Case:
    """An operator of the database (`name` holds its variant too) with one dtype, forward or backward."""

    name: str
    dtype: str
    backward: bool

    @property
    def key(self) -> str:
        return f"{self.name} {self.dtype} {'backward' if self.backward else 'forward'}"


@dataclass(frozen=True)
class Outcome:
    """`fallbacks`: ATen operators that the host ran. `samples`: how many were compared. `excused`: how many were not,
    since their integers need more than 32 bits."""

    case: Case
    verdict: Verdict
    samples: int = 0
    excused: int = 0
    random: bool = False
    fallbacks: tuple[str, ...] = ()
    detail: str = ""
    seconds: float = field(default=0.0, compare=False)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> Outcome:
        return Outcome(
            Case(**document["case"]),
            Verdict(document["verdict"]),
            document["samples"],
            document["excused"],
            document["random"],
            tuple(document["fallbacks"]),
            document["detail"],
            document["seconds"],
        )
