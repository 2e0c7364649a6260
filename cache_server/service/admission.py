"""What the service needs from whatever guards the store's room."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from cache_server.manifest import Blob


@dataclass(frozen=True, slots=True)
class Held:
    """Blobs by SHA-256: `stored_here` were stored by this process for entries to come, `going` are being removed."""

    stored_here: frozenset[str] = frozenset()
    going: frozenset[str] = frozenset()


class Promise(Protocol):
    """Room that was promised."""

    def settle(self, *, created: bool) -> None:
        """Counts what was stored for it; `created` where nothing was there before. Blocks.

        For whoever is in a thread that may: at its normal end the reservation does it, in one of its own.
        """
        ...


class Space(Protocol):
    """Says whether there is room before a byte is accepted, and makes room by evicting."""

    def reserve(self, namespace: str, size: int, path: str = "") -> AbstractAsyncContextManager[Promise]:
        """Room for `size` bytes while the body runs; what it stored counts from its normal end, else it is given back.

        `path` is the object's in the store; without one it is for a manifest, whose blobs have been let in already.
        Raises `errors.NoSpaceError` or `errors.QuotaError` at entry.
        """
        ...

    def hold(self, namespace: str, blobs: Iterable[Blob]) -> Held:
        """Keeps blobs that an entry is about to name from being removed. What is going counts as missing.

        Never blocks.
        """
        ...

    async def collect(self, *, dry_run: bool, namespace: str | None = None) -> dict[str, Any]:
        """Removes what policy says may go. Returns the JSON of `POST /v1/gc`."""
        ...


class _Nothing:
    """The promise of whoever counts nothing."""

    def settle(self, *, created: bool) -> None:
        pass


class OpenSpace:
    """No limit and no policy: the disk is the limit, and nothing is ever removed."""

    @contextlib.asynccontextmanager
    async def reserve(self, namespace: str, size: int, path: str = "") -> AsyncIterator[Promise]:
        yield _Nothing()

    def hold(self, namespace: str, blobs: Iterable[Blob]) -> Held:
        return Held()

    async def collect(self, *, dry_run: bool, namespace: str | None = None) -> dict[str, Any]:
        return {"dry_run": dry_run, "freed_bytes": 0, "entries": 0, "namespaces": {}}
