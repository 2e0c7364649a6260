"""What a rule found: where, why, and what to write instead."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class Level(Enum):
    """An error does not work on the device, a warning costs speed or differs, a note is worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Rule:
    """`id` is stable: people write it into comments that silence it. `why` is a sentence, without a full stop."""

    id: str
    level: Level
    why: str


@dataclass(frozen=True, order=True)
class Edit:
    """Replaces the text from one place to another by `text`; lines from 1, columns from 0 in UTF-8 bytes."""

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


@dataclass(frozen=True)
class Finding:
    """One place; the line and columns count from 1, in characters. `edits` are the mechanical mend, if there is one."""

    rule: Rule
    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    what: str
    instead: str | None
    level: Level
    edits: tuple[Edit, ...] = ()

    @property
    def fixable(self) -> bool:
        return bool(self.edits)

    def to_json(self) -> dict[str, Any]:
        return {
            "rule": self.rule.id,
            "level": self.level.value,
            "path": self.path,
            "line": self.line,
            "column": self.column,
            "end_line": self.end_line,
            "end_column": self.end_column,
            "what": self.what,
            "why": self.rule.why,
            "instead": self.instead,
            "fixable": self.fixable,
        }
