"""A check and its outcome: what `neff verify` prints, and what the reader refuses on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .errors import NeffError


@dataclass(frozen=True, slots=True)
class Finding:
    """One check of one field. `expected` and `found` are text for people; `found` is safe to print."""

    field: str
    ok: bool
    expected: str
    found: str

    def to_json(self) -> dict[str, Any]:
        return {"field": self.field, "ok": self.ok, "expected": self.expected, "found": self.found}


def require(findings: Iterable[Finding]) -> None:
    """Raise NeffError for the first check that failed."""
    for finding in findings:
        if not finding.ok:
            raise NeffError(finding.field, f"`{finding.field}` should be {finding.expected}, found {finding.found}")


def shown(text: str, limit: int = 80) -> str:
    """Hostile text made fit for a terminal and a log line: no control characters, bounded length."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
