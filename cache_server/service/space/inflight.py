"""Blobs that no entry names yet, because their publish is on its way."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cache_server.manifest import Blob
from cache_server.service.admission import Held

HOLD_SECONDS = 3600.0


@dataclass(slots=True)
class _Hold:
    namespace: str
    size: int
    since: float
    stored_here: bool


class InFlight:
    """Keeps eviction and publishing apart within this process. Never blocks; safe from every thread.

    A blob is held from when it was stored, or is about to be named, until the index knows the entry that names it, or
    for an hour. A held blob is not removed; one whose removal has begun cannot be held.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[str, _Hold] = {}  # the oldest first
        self._bytes: dict[str, int] = {}
        self._going: set[str] = set()

    def hold(self, namespace: str, blobs: Iterable[Blob], *, stored: bool = False) -> Held:
        """Holds what may be held. `stored`: this process has just stored them."""
        now = self._clock()
        stored_here, going = set(), set()
        with self._lock:
            self._expire()
            for blob in set(blobs):
                sha256 = blob.sha256
                if sha256 in self._going:
                    going.add(sha256)
                    continue
                before = self._held.get(sha256)
                here = stored or (before is not None and before.stored_here)
                if here:
                    stored_here.add(sha256)
                self._drop(sha256)
                self._held[sha256] = _Hold(namespace, blob.size, now, here)
                self._bytes[namespace] = self._bytes.get(namespace, 0) + blob.size
        return Held(frozenset(stored_here), frozenset(going))

    def is_held(self, sha256: str) -> bool:
        with self._lock:
            self._expire()
            return sha256 in self._held

    def named(self, digests: Iterable[str]) -> None:
        """The index knows an entry that names them."""
        with self._lock:
            for sha256 in digests:
                self._drop(sha256)

    def bytes_of(self, namespace: str) -> int:
        """What is held for a namespace."""
        with self._lock:
            self._expire()
            return self._bytes.get(namespace, 0)

    def begin_removal(self, sha256: str) -> bool:
        """False if it is held; else nobody can hold it until `end_removal`."""
        with self._lock:
            self._expire()
            if sha256 in self._held:
                return False
            self._going.add(sha256)
            return True

    def end_removal(self, sha256: str) -> None:
        with self._lock:
            self._going.discard(sha256)

    def _expire(self) -> None:
        before = self._clock() - HOLD_SECONDS
        while self._held:
            oldest = next(iter(self._held))
            if self._held[oldest].since > before:
                return
            self._drop(oldest)

    def _drop(self, sha256: str) -> None:
        hold = self._held.pop(sha256, None)
        if hold is not None:
            self._bytes[hold.namespace] -= hold.size
            if not self._bytes[hold.namespace]:
                del self._bytes[hold.namespace]
