"""What leases need from the place their records are kept in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Versioned:
    """The content of a record, and the version that a change has to name. A version never comes back."""

    data: bytes
    version: str


class RecordStore(Protocol):
    """Small records that change by compare-and-swap, seen whole or not at all.

    Changes raise ConflictError when somebody else was first, and StoreError when the place cannot be used. A change
    that succeeded, but was followed by another one before its writer could be sure, may be reported as a conflict as
    well: read again to tell. A name is a relative path of plain components. `url` names the place in messages.
    """

    url: str

    def read(self, name: str) -> Versioned | None:
        """The record as it is now, as far as this host can see; None if there is none."""
        ...

    def create_exclusive(self, name: str, data: bytes) -> str:
        """Makes a record where there is none. Returns its version."""
        ...

    def compare_and_swap(self, name: str, version: str, data: bytes) -> str:
        """Replaces exactly `version`. Returns the new version."""
        ...

    def delete_if(self, name: str, version: str) -> None:
        """Removes exactly `version`."""
        ...

    def purge(self, name: str) -> None:
        """Removes every trace of a record that nobody else can have seen."""
        ...

    def names(self, prefix: str, *, since: float = 0.0) -> Iterator[str]:
        """The names of the records below `prefix` (all for an empty one), in no order. For administration.

        Without those that were last changed before `since` (in seconds since 1970, by the place's own clock), where
        that can be told. May name a record that was deleted.
        """
        ...
