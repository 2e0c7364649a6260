"""What a listing shows of an entry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cache_server.fields import Fields
from cache_server.names import check_digest

_SECONDS_LIMIT = 1e12


@dataclass(frozen=True, slots=True)
class Summary:
    """One line of a listing. Sizes are bytes, times seconds since 1970; `expires_at` is for remembered failures."""

    key: str
    is_failure: bool
    label: str
    size: int
    created_at: float
    compile_seconds: float
    host: str
    epoch: int
    pinned: bool
    expires_at: float | None = None

    @property
    def saved_seconds(self) -> float:
        """What each hit saves."""
        return 0.0 if self.is_failure else self.compile_seconds

    @classmethod
    def from_fields(cls, fields: Fields) -> Summary:
        """Reads one line of `GET …/entries`. Raises ValueError."""
        given = fields.raw()

        def seconds(name: str) -> float:
            return fields.number(name, low=0, high=_SECONDS_LIMIT)

        return cls(
            key=check_digest(fields.text("key", limit=64)),
            is_failure=fields.text("kind", limit=20) == "failure",
            label=fields.text("label", limit=200),
            size=fields.integer("size", low=0, high=1 << 62),
            created_at=seconds("created_at"),
            compile_seconds=seconds("took_seconds"),
            host=fields.text("host", limit=300),
            epoch=fields.integer("epoch", low=0, high=1 << 62),
            pinned=given.get("pinned") is True,
            expires_at=None if given.get("expires_at") is None else seconds("expires_at"),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "kind": "failure" if self.is_failure else "neff",
            "label": self.label,
            "bytes": self.size,
            "created_at": self.created_at,
            "compile_seconds": self.compile_seconds,
            "host": self.host,
            "epoch": self.epoch,
            "pinned": self.pinned,
            "expires_at": self.expires_at,
        }
