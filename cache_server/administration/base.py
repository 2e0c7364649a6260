"""What the commands need of whoever looks after a store: this process, or a service that keeps one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from cache_server.administration.collection import Policy
from cache_server.administration.fsck import Finding
from cache_server.administration.listing import Filter
from cache_server.administration.locks import Hold
from cache_server.administration.removal import Removed, Thing
from cache_server.administration.snapshot import Entry
from cache_server.administration.status import StoreStatus
from cache_server.administration.summary import Summary

Progress = Callable[[int, int], None]  # told how much is done, and of how much


@dataclass(frozen=True, slots=True)
class Listing:
    """The entries that were asked for; `total` is how many there are, `obscure` how many cannot be understood.

    `complete` is False where a service has not looked through its store yet.
    """

    entries: tuple[Summary, ...]
    total: int
    obscure: int = 0
    complete: bool = True


class Proposal(Protocol):
    """What would be removed, for somebody to agree to. `notes` are for people."""

    @property
    def things(self) -> Sequence[Thing]: ...

    @property
    def notes(self) -> Sequence[str]: ...

    def carry_out(self, progress: Progress) -> Removed:
        """Removes it, but for what changed meanwhile. Raises StoreError; what was done until then stays done."""
        ...


class Administration(Protocol):
    """One namespace of a store and what is shared with the others. `url` is for messages.

    Methods raise StoreError when the place cannot be read or written or does not allow it, and CacheError for keys that
    are none. A key may be given by its beginning, `text`.
    """

    @property
    def url(self) -> str: ...

    @property
    def namespace(self) -> str: ...

    def status(self, *, details: bool) -> StoreStatus:
        """What there is. `details` may take long: where nobody has counted, each manifest is read."""
        ...

    def ls(self, wanted: Filter, *, sort: str, limit: int | None) -> Listing: ...

    def entry(self, text: str) -> Entry:
        """One entry with its lease record, and whether it is pinned."""
        ...

    def holds(self) -> list[Hold]:
        """The leases that are held, the oldest first, judged by one look."""
        ...

    def watch(self, holds: Sequence[Hold]) -> list[Hold]:
        """The same once it is known of each owner whether it lives; without those that ended meanwhile."""
        ...

    def free(self, hold: Hold) -> bool:
        """Ends exactly this lease; False if it changed since: its owner lives, or is done."""
        ...

    def pin(self, text: str) -> tuple[str, bool]:
        """Keeps an entry from `rm` and `gc`. The key, and whether that was news."""
        ...

    def unpin(self, text: str) -> tuple[str, bool]: ...

    def removal(self, texts: Sequence[str]) -> Proposal:
        """Entries to be removed. Raises CacheError if one is pinned."""
        ...

    def collection(self, policy: Policy) -> Proposal:
        """What the store can do without."""
        ...

    def check(self, *, repair: bool, contents: bool, grace: float, progress: Progress) -> list[Finding]:
        """Every problem, mended where that can be done if `repair`. Progress is in bytes."""
        ...
