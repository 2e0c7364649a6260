"""Small blobs that were verified once, kept in memory: most graphs of a fleet are asked for by all of it at once."""

from __future__ import annotations

import threading
from collections import OrderedDict

_SHARE = 16  # one blob has at most this part of the room
_REMEMBERED = 100_000


class HotBlobs:
    """Verified content by SHA-256, least recently used goes first. Safe from every thread.

    A name is the digest of its content, so nothing here can be out of date. What is gone from the store may still be
    here: that a blob is here says nothing about the store.
    """

    def __init__(self, room: int) -> None:
        """`room` is in bytes; 0 keeps nothing."""
        self.largest = room // _SHARE
        self._room = room
        self._held = 0
        self._blobs: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()
        self._whole: OrderedDict[str, None] = OrderedDict()

    def get(self, sha256: str) -> bytes | None:
        # Each step is whole by itself, and this is the way of every request: no lock.
        data = self._blobs.get(sha256)
        if data is not None:
            try:  # noqa: SIM105  a context manager takes longer than all the rest
                self._blobs.move_to_end(sha256)
            except KeyError:
                pass  # another thread has just put it out
        return data

    def put(self, sha256: str, data: bytes) -> None:
        """Keeps `data`, which the caller has verified, unless it is too large."""
        if len(data) > self.largest:
            return
        with self._lock:
            self._held += len(data) - len(self._blobs.pop(sha256, b""))
            self._blobs[sha256] = data
            while self._held > self._room:
                self._held -= len(self._blobs.popitem(last=False)[1])

    @property
    def held(self) -> int:
        """Bytes in memory."""
        return self._held

    def was_whole(self, sha256: str) -> bool:
        """Whether a blob that is too large to be kept was found right when this process last read all of it."""
        with self._lock:
            return sha256 in self._whole

    def remember_whole(self, sha256: str) -> None:
        with self._lock:
            self._whole[sha256] = None
            while len(self._whole) > _REMEMBERED:
                self._whole.popitem(last=False)
