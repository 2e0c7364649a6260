"""Taking entries out of a store that others write to, in the order of their last use."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from cache_server.administration.removal import remove_entry
from cache_server.administration.retention import Candidate, coldest
from cache_server.administration.snapshot import look_at
from cache_server.manifest import Blob, UnknownSchemaError
from cache_server.service.index import BlobRow, EntryRow, Index
from cache_server.service.index.rows import PLAIN
from cache_server.service.space.inflight import InFlight
from cache_server.storage import Storage
from cache_server.store import Store

_PAGE = 256
_BEFORE = (-1.0, "")  # in the order of going, before everything

log = logging.getLogger("neuron_env.cache.server")


@dataclass(slots=True)
class Freed:
    """What was removed, or would be."""

    entries: int = 0
    blobs: int = 0
    bytes: int = 0
    by_namespace: dict[str, dict[str, int]] = field(default_factory=dict)

    def add_entry(self, namespace: str, size: int) -> None:
        self.entries += 1
        self.bytes += size
        counts = self.by_namespace.setdefault(namespace, {"entries": 0, "freed_bytes": 0})
        counts["entries"] += 1
        counts["freed_bytes"] += size

    def add_blob(self, size: int, namespace: str | None = None) -> None:
        self.blobs += 1
        self.bytes += size
        if namespace is not None:
            self.by_namespace.setdefault(namespace, {"entries": 0, "freed_bytes": 0})["freed_bytes"] += size

    def merge(self, other: Freed) -> None:
        self.entries += other.entries
        self.blobs += other.blobs
        self.bytes += other.bytes
        for namespace, counts in other.by_namespace.items():
            mine = self.by_namespace.setdefault(namespace, {"entries": 0, "freed_bytes": 0})
            for name, count in counts.items():
                mine[name] += count


class Evictor:
    """Removes entries, each only if the store still has it as it was chosen, and then blobs that nothing names.

    One thread at a time. A manifest goes before its blobs; a blob goes only if it is unchanged since a moment from
    which on everybody who names it is known, and is not held for a publish: whoever publishes stores or renews the
    blob first, which changes it.
    """

    def __init__(
        self,
        storage: Storage,
        index: Index,
        in_flight: InFlight,
        *,
        on_evicted: Callable[[EntryRow, str, int], None] = lambda row, reason, freed: None,
    ) -> None:
        self._storage = storage
        self._backend = storage.store.backend
        self._index = index
        self._in_flight = in_flight
        self._on_evicted = on_evicted
        self._lock = threading.RLock()

    def make_room(self, need: Callable[[], int], reason: str, *, namespace: str | None = None) -> Freed:
        """Evicts the coldest entries (of one namespace) until `need`, asked again and again, is 0 or none is left.

        Raises StoreError.
        """
        freed = Freed()
        with self._lock:
            self._index.flush()
            after = _BEFORE
            while (wanted := need()) > 0:
                chosen = list(self.choose(wanted, namespace=namespace, after=after))
                if not chosen:
                    break
                after = chosen[-1].coldness
                self.remove(chosen, reason, into=freed)
        return freed

    def choose(
        self, need: int, *, namespace: str | None = None, after: tuple[float, str] = _BEFORE
    ) -> Iterator[Candidate]:
        """The coldest entries after `after` without which `need` bytes are free."""
        return coldest(self._candidates(namespace, after), need, lambda blob: self._index.users(blob.sha256, namespace))

    def remove(self, candidates: list[Candidate], reason: str, *, into: Freed) -> None:
        """Removes entries and what only they named; counts in `into` what went. Raises StoreError."""
        with self._lock:
            gone = []
            for candidate in candidates:
                row = self._index.entry(candidate.namespace, candidate.key)
                if row is not None and self._remove_entry(candidate, row):
                    gone.append((candidate, row))
            if not gone:
                return
            self._index.flush()
            for candidate, row in gone:
                into.add_entry(candidate.namespace, candidate.own_bytes)
                freed = candidate.own_bytes
                for blob in candidate.blobs:
                    known = self._index.blob(blob.sha256)
                    if known is not None and known.settled and self._remove_blob(known):
                        into.add_blob(known.found.size, candidate.namespace)
                        freed += known.found.size
                self._index.evicted(row, freed, reason)
                self._on_evicted(row, reason, freed)
                log.info(
                    "evicted %s of %s (%s): %d bytes freed, %s",
                    candidate.key,
                    candidate.namespace,
                    row.label,
                    freed,
                    reason,
                )
            self._index.flush()

    def remove_orphans(self, *, before: float, into: Freed) -> None:
        """Removes blobs that nothing names, written before `before` (wall time). Raises StoreError."""
        with self._lock:
            while orphans := self._index.orphans(before=before, limit=_PAGE):
                removed = [row for row in orphans if self._remove_blob(row)]
                for row in removed:
                    into.add_blob(row.found.size)
                self._index.flush()
                if len(removed) < len(orphans):
                    return  # the others changed, or are held: the next scan and the next round see to them

    def _candidates(self, namespace: str | None, after: tuple[float, str]) -> Iterator[Candidate]:
        while page := self._index.coldest(namespace, after, _PAGE):
            for candidate in page:
                # For a quota it is enough that the namespace names it no more.
                if namespace is not None or all(map(self._can_go, candidate.blobs)):
                    yield candidate
            after = page[-1].coldness

    def _can_go(self, blob: Blob) -> bool:
        """Whether evicting an entry that names it would free it at once, or need not, since others name it too."""
        known = self._index.blob(blob.sha256)
        return (
            known is None
            or (known.settled and not self._in_flight.is_held(blob.sha256))
            or self._index.users(blob.sha256) > 1
        )

    def _remove_entry(self, candidate: Candidate, row: EntryRow) -> bool:
        if row.kind == PLAIN:
            return self._remove_plain(row)
        storage = Storage(Store(self._backend, candidate.namespace), self._storage.records)
        try:
            entry = look_at(storage, candidate.key)
        except UnknownSchemaError:
            return False
        if entry is None:
            self._index.remove_entry(candidate.namespace, candidate.key)
            return True
        if entry.manifest.created_at != candidate.created_at:
            own = entry.found.size if entry.found else 0
            self._index.put_entry(EntryRow.of_manifest(candidate.namespace, entry.manifest, own_bytes=own))
            return False
        if remove_entry(storage, entry):
            self._index.remove_entry(candidate.namespace, candidate.key)
            return True
        return False

    def _remove_plain(self, row: EntryRow) -> bool:
        found = self._backend.find(row.key)
        if found is None or (found.version == row.version and self._backend.remove(found)):
            self._index.remove_entry(row.namespace, row.key)
            return True
        self._index.put_entry(EntryRow.of_object(row.namespace, found))  # written anew: a new object
        return False

    def _remove_blob(self, row: BlobRow) -> bool:
        sha256 = row.sha256
        if not self._in_flight.begin_removal(sha256):
            return False
        try:
            # Asked after the removal has begun: from here on nobody can be about to name it unseen.
            if self._index.users(sha256):
                return False
            if self._backend.remove(row.found):
                self._index.remove_blob(sha256)
                return True
            if self._backend.find(row.found.path) is None:
                self._index.remove_blob(sha256)
            return False
        finally:
            self._in_flight.end_removal(sha256)
