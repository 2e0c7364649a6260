"""Keeping the local tier within a size, without looking through it at every request."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path

from cache_server.permissions import make_directories

log = logging.getLogger("neuron_env.cache")

_LOW_WATER = 0.9  # of the limit that is left after making room, so that room lasts for a while
_LONGEST_JOURNAL = 64 * 1024  # bytes; then the tier is measured anew
_TOUCH_SECONDS = 60.0  # a NEFF in constant use is marked as used this often
_LEFTOVER_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class _Kept:
    """A NEFF with its digest file, or one of the two alone. Bytes, and seconds since 1970."""

    neff: Path
    size: int
    used_at: float


class LocalLimit:
    """The least recently used NEFFs below `root` go once all of them have more than `max_bytes`.

    How many there are is kept as a journal of what was added, one short line a NEFF, in a private directory; every
    process appends to it, and whoever finds the sum past the limit measures the tier, makes room, and begins the
    journal anew. One process at a time does so, and nobody waits for it. What the journal misses (a crash between
    the NEFF and its line) the next measuring finds.

    When a NEFF was used is the time of its digest file's last change, which only `touch` moves: reading a file for a
    backup or a check is no use of it. Nothing here raises.
    """

    def __init__(self, root: Path, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._root = root
        self._journal = root / "locks" / "added"

    def touch(self, digest_file: Path) -> None:
        """Marks a NEFF as used now."""
        with contextlib.suppress(OSError):
            if time.time() - digest_file.stat().st_mtime > _TOUCH_SECONDS:
                os.utime(digest_file)

    def added(self, size: int) -> None:
        """Accounts for a NEFF of `size` bytes that was kept, and makes room if it was too much."""
        try:
            if self._append(size) > self.max_bytes:
                self._make_room()
        except OSError as error:
            log.debug("the size of the local tier at %s is not known: %s", self._root, error)

    def _append(self, size: int) -> int:
        """The bytes in the tier, as far as the journal knows; more than any limit where it has to be measured."""
        try:
            fd = os.open(self._journal, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return self.max_bytes + 1
        with os.fdopen(fd, "rb+", buffering=0) as journal:
            journal.write(b"%d\n" % size)
            journal.seek(0)
            text = journal.read(_LONGEST_JOURNAL + 1)
        lines = text.split(b"\n")
        if len(text) > _LONGEST_JOURNAL or any(line and not line.isdigit() for line in lines):
            return self.max_bytes + 1
        return sum(int(line) for line in lines if line)

    def _make_room(self) -> None:
        from cache_server.hostlock import HostLock

        make_directories(self._journal.parent, 0o700)
        lock = HostLock(self._journal.parent, "limit")
        if not lock.try_acquire():
            return  # somebody is at it
        try:
            kept = sorted(self._measure(), key=lambda each: each.used_at)
            total = sum(each.size for each in kept)
            if total > self.max_bytes:
                total -= self._remove(kept, total - int(self.max_bytes * _LOW_WATER))
            fresh = self._journal.with_name(f"added-{os.urandom(8).hex()}")
            fresh.write_text(f"{total}\n")
            fresh.replace(self._journal)
        finally:
            lock.release()

    def _measure(self) -> list[_Kept]:
        """Our own NEFFs, and what was set aside. TorchNeuron's, which have no digest file, are its own business."""
        kept = []
        for digest in self._root.glob("??/??/*.neff.sha256"):
            neff = digest.with_name(digest.name.removesuffix(".sha256"))
            with contextlib.suppress(OSError):
                info = digest.stat()
                try:
                    size = neff.stat().st_size
                except FileNotFoundError:
                    if time.time() - info.st_mtime > _LEFTOVER_SECONDS:
                        digest.unlink()
                    continue
                kept.append(_Kept(neff, size, info.st_mtime))
        for aside in self._root.glob("quarantine/*"):
            with contextlib.suppress(OSError):
                kept.append(_Kept(aside, aside.stat().st_size, 0.0))
        return kept

    def _remove(self, kept: list[_Kept], wanted: int) -> int:
        """Removes from the first on until `wanted` bytes are free; returns the bytes freed."""
        freed = 0
        for each in kept:
            if freed >= wanted:
                break
            with contextlib.suppress(OSError):
                # The NEFF first: a digest file without one is a miss, and so is the reverse.
                each.neff.unlink()
                freed += each.size
                for suffix in ("sha256", "origin", "json", "outputs"):
                    each.neff.with_name(f"{each.neff.name}.{suffix}").unlink(missing_ok=True)
        log.info("removed %d bytes that were used least recently from the local tier at %s", freed, self._root)
        return freed
