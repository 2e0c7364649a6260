"""What became of each thing that was to be moved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Fate(StrEnum):
    """The ends that one thing can come to."""

    MOVED = "moved"
    PRESENT = "present"  # it was there already
    SKIPPED = "skipped"  # on purpose, or because it cannot be used
    FAILED = "failed"  # it should have been moved


@dataclass(frozen=True, slots=True)
class Item:
    """One thing and its fate. `why` is for people, `key` is empty where nobody knows it, `size` is in bytes.

    `place` is where it went or already was, `compile_seconds` what a hit on it saves.
    """

    name: str
    fate: Fate
    why: str = ""
    key: str = ""
    place: str = ""
    size: int = 0
    compile_seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "fate": self.fate.value,
            "why": self.why,
            "key": self.key or None,
            "place": self.place or None,
            "bytes": self.size,
            "compile_seconds": self.compile_seconds,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """Every item, in the order in which they were met."""

    items: tuple[Item, ...]

    @classmethod
    def of(cls, items: Iterable[Item]) -> Report:
        return cls(tuple(items))

    def having(self, fate: Fate) -> list[Item]:
        return [item for item in self.items if item.fate is fate]

    @property
    def moved_bytes(self) -> int:
        return sum(item.size for item in self.having(Fate.MOVED))

    @property
    def saved_seconds(self) -> float:
        """The compiles that need not be repeated where the things went."""
        return sum(item.compile_seconds for item in self.having(Fate.MOVED))

    @property
    def counts(self) -> dict[str, int]:
        """The number of items by fate, zeros included."""
        return {fate.value: len(self.having(fate)) for fate in Fate}
