"""What the service needs from whatever keeps count of the store's content."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from cache_server.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Query:
    """One page of a listing. `cursor` is what the page before gave, `sort` is created, used, size or saved."""

    limit: int = 100
    cursor: str | None = None
    kind: str | None = None  # neff or failure
    label: str | None = None  # part of the label
    sort: str = "created"
    prefix: str = ""  # what the key begins with


@dataclass(frozen=True, slots=True)
class Page:
    """Summaries (JSON objects), the cursor of the next page, None at the end, and how many entries there are in all.

    `complete` is False while there may be entries that nobody has looked at yet.
    """

    entries: list[dict[str, Any]]
    next: str | None
    total: int
    complete: bool = True


class Catalogue(Protocol):
    """Fed by what passes through the service. Never needed for a hit.

    `used`, `used_plain`, `missed`, `published`, `removed`, `pinned` and `look_again` return at once; `listing`,
    `holding` and `totals` are called in a thread and may block. `totals` gives "totals", "namespaces",
    "recent_failures", "recent_evictions" and "history" of `/v1/stats`.
    """

    def start(self) -> None:
        """Begins work in the background. The service listens already, or is about to."""
        ...

    def close(self) -> None: ...

    def used(self, namespace: str, manifest: Manifest) -> None: ...

    def used_plain(self, namespace: str, path: str) -> None:
        """An object of another build cache was read; `path` is its place in the store."""
        ...

    def missed(self, namespace: str, key: str) -> None: ...

    def published(self, namespace: str, manifest: Manifest) -> None: ...

    def removed(self, namespace: str, key: str) -> None: ...

    def pinned(self, namespace: str, key: str, pinned: bool) -> None: ...

    def look_again(self) -> None:
        """Something was taken from the store that nobody told of: look through it soon."""
        ...

    def listing(self, namespace: str, query: Query) -> Page:
        """Raises ValueError for a cursor it did not give."""
        ...

    def holding(self, namespace: str) -> dict[str, Any]:
        """What only a look at each entry tells: more members for the statistics of a namespace."""
        ...

    def totals(self) -> dict[str, Any]: ...
