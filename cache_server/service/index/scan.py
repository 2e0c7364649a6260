"""Finding what is in the store, in the background."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from cache_server.administration.pins import pinned_keys
from cache_server.administration.snapshot import SeenRecord, read_record
from cache_server.administration.usage import read_uses
from cache_server.backends import Found
from cache_server.leases.record import State
from cache_server.manifest import MANIFEST_LIMIT, UnknownSchemaError, decode_manifest
from cache_server.names import is_digest
from cache_server.service.index.index import Index
from cache_server.service.index.rows import EntryRow
from cache_server.storage import Storage

T = TypeVar("T")

_BATCH = 512  # objects between two pauses, in which requests have the interpreter to themselves
_PAUSE = 0.002

log = logging.getLogger("neuron_env.cache")


class StoppedError(Exception):
    """The service ends."""


class Scanner:
    """Brings an index up to date with its store. A manifest that the index knows as it is, is not read again.

    So a scan that was stopped, or killed, costs the next one little. Safe to call from several threads: one scans, the
    others wait for it and then scan again, because it may have passed what they want to know of.
    """

    def __init__(self, storage: Storage, index: Index, *, stopped: Callable[[], bool] = lambda: False) -> None:
        self._storage = storage
        self._backend = storage.store.backend
        self._index = index
        self._stopped = stopped
        self._one = threading.Lock()
        self.idle_records: list[SeenRecord] = []  # free ones of keys without an entry, as the last scan saw them

    def run(self) -> int:
        """Looks through the whole store; the number of entries. Raises StoreError, and StoppedError."""
        with self._one:
            scan = self._index.begin_scan()
            # Blobs before what may name them: one that is unnamed then was not in anybody's use when it was seen.
            for batch in self._batches(self._backend.scan("blobs")):
                self._index.scanned_blobs([it for it in batch if is_digest(_name(it))], scan)
            namespaces: set[str] = set()
            entries, understood = 0, True
            for batch in self._batches(self._backend.scan("entries")):
                count, obscure = self._take_entries(batch, scan, namespaces)
                entries += count
                understood = understood and not obscure
            self._take_unlisted(scan)
            for batch in self._batches(self._backend.scan("plain")):
                rows = [EntryRow.of_object(found.path.split("/")[1], found) for found in batch]
                self._index.scanned_entries(rows, (), scan)
            self._index.end_scan(scan, manifests_complete=understood)
            self._index.learn(read_uses(self._backend))
            for namespace in sorted(namespaces):
                self._index.mark_pinned(namespace, pinned_keys(self._backend, namespace))
            self._index.flush()
            if not understood:
                log.warning("some manifests in %s cannot be understood, so no blob is removed", self._backend.url)
            return entries

    def _take_entries(self, batch: list[Found], scan: int, namespaces: set[str]) -> tuple[int, bool]:
        places = {}
        for found in batch:
            parts = found.path.split("/")
            key = parts[-1].removesuffix(".json")
            if len(parts) == 4 and is_digest(key):
                places[parts[1], key] = found
                namespaces.add(parts[1])
        known = self._index.known_versions(list(places))
        read, unchanged, obscure = [], [], False
        for place, found in places.items():
            if known.get(place) == found.version:
                unchanged.append(place)
                continue
            try:
                data = self._backend.read(found.path, MANIFEST_LIMIT)
                if data is None:
                    continue
                manifest = decode_manifest(data, key=place[1])
            except UnknownSchemaError:
                obscure = True
                continue
            except ValueError:
                continue  # names nothing; fsck sets it aside
            own = found.size
            read.append(EntryRow.of_manifest(place[0], manifest, own_bytes=own, version=found.version))
        self._index.scanned_entries(read, unchanged, scan)
        return len(read) + len(unchanged), obscure

    def _take_unlisted(self, scan: int) -> None:
        """Results whose owner was killed before it listed them: only the lease record has them."""
        self._index.flush()
        records, idle = self._storage.records, []
        for names in self._batches(records.names("")):
            split = ((name, *name.split("/")) for name in names)
            places = {(it[1], it[-1]): it[0] for it in split if len(it) == 4 and is_digest(it[-1])}
            known = self._index.known_versions(list(places))
            rows = []
            for (namespace, key), name in places.items():
                seen = None if (namespace, key) in known else read_record(records, name, namespace, key)
                if seen is None or seen.record is None:
                    continue
                if seen.record.settled is not None:
                    rows.append(EntryRow.of_manifest(namespace, seen.record.settled, own_bytes=0))
                elif seen.record.state is State.FREE:
                    idle.append(seen)
            self._index.scanned_entries(rows, (), scan)
        self.idle_records = idle

    def _batches(self, items: Iterable[T]) -> Iterator[list[T]]:
        iterator = iter(items)
        while batch := list(itertools.islice(iterator, _BATCH)):
            if self._stopped():
                raise StoppedError
            yield batch
            time.sleep(_PAUSE)


def _name(found: Found) -> str:
    return found.path.rpartition("/")[2]
