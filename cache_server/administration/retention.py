"""Which entries go first, and which go in any case. Pure; for the commands and the service alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from cache_server.manifest import Blob


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a policy has to know of one entry. Times are seconds since 1970, sizes bytes.

    `used_at` is the last use, or the creation where no use is known. `own_bytes` is what it has beside its blobs.
    `expires_at` is for remembered failures.
    """

    namespace: str
    key: str
    blobs: frozenset[Blob]
    created_at: float
    used_at: float
    own_bytes: int = 0
    expires_at: float | None = None
    pinned: bool = False

    @property
    def size(self) -> int:
        """All its bytes, those included that others name as well."""
        return self.own_bytes + sum(blob.size for blob in self.blobs)

    @property
    def coldness(self) -> tuple[float, str]:
        """Sorts what is to go first to the front."""
        return (self.used_at, self.key)


def overdue(
    candidate: Candidate, *, now: float, older_than: float | None = None, unused_for: float | None = None
) -> str | None:
    """Why an entry is to go whatever room there is; None if it is not. Pinned ones never are. Limits are seconds."""
    if candidate.pinned:
        return None
    if candidate.expires_at is not None and candidate.expires_at <= now:
        return "the failure is no longer remembered"
    if older_than is not None and candidate.created_at < now - older_than:
        return "made too long ago"
    if unused_for is not None and candidate.used_at < now - unused_for:
        return "not used for too long"
    return None


def coldest(coldest_first: Iterable[Candidate], need: int, users: Callable[[Blob], int]) -> Iterator[Candidate]:
    """The first candidates without which at least `need` bytes are free; fewer bytes if there are no more.

    A blob is free once as many of its users are chosen as `users` says it has. Failures and pinned entries stay: the
    former have next to no size and expire by themselves.
    """
    left: dict[Blob, int] = {}
    for candidate in coldest_first:
        if need <= 0:
            return
        if candidate.pinned or candidate.expires_at is not None:
            continue
        need -= candidate.own_bytes
        for blob in candidate.blobs:
            left[blob] = left.get(blob, users(blob)) - 1
            if left[blob] == 0:
                need -= blob.size
        yield candidate
