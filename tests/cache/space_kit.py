"""A store with an index, a space and a collector, without the service around them."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cache_kit import parts

from cache_server.administration.snapshot import take_snapshot
from cache_server.keys import KeyParts
from cache_server.manifest import NEFF_FILE, Blob, Failure, Manifest, Producer
from cache_server.service.index import EntryRow, Index
from cache_server.service.space import Collector, DiskUse, Evictor, InFlight, Limits, Space
from cache_server.service.space.collector import Pace
from cache_server.service.space.election import Election
from cache_server.storage import Storage, open_storage
from cache_server.store import Store, blob_path

MANUAL = Pace(scan=1e6, share=1e6, collect=1e6)  # nothing happens by itself


class FakeDisk:
    """As much as the test says."""

    def __init__(self, use: DiskUse | None = None) -> None:
        self.seen = use

    def use(self) -> DiskUse | None:
        return self.seen


class Keeper:
    """What one replica knows and does, each step by hand. `now` is what it takes for the time of uses."""

    def __init__(
        self,
        url: str,
        state: Path,
        limits: Limits | None = None,
        *,
        name: str = "r1",
        disk: FakeDisk | None = None,
        pace: Pace = MANUAL,
        election_seconds: float = 30.0,
    ) -> None:
        self.storage: Storage = open_storage(url)
        self.backend = self.storage.store.backend
        self.now = 10_000.0
        self.in_flight = InFlight()
        self.index = Index(state, self.backend.url, grace=pace.grace, on_new=self._is_new)
        self.evictor = Evictor(self.storage, self.index, self.in_flight)
        self.space = Space(
            limits or Limits(), self.backend, self.index, self.evictor, self.in_flight, disk or FakeDisk()
        )
        self.election = Election(self.storage.records, excludes=lambda: True, seconds=election_seconds)
        self.made_anew = 0
        self.collector = Collector(
            self.storage,
            self.index,
            self.space,
            self.evictor,
            self.election,
            replica=name,
            pace=pace,
            stopped=threading.Event(),
        )

    def put(
        self, ir: str, content: bytes | None = None, *, namespace: str = "default", failure: Failure | None = None
    ) -> str:
        """Stores and publishes like the service does; the key. Raises NoSpaceError or QuotaError."""
        key_parts = parts(ir)
        blobs = [] if failure else [self.put_blob(content or ir.encode() * 100, namespace=namespace)]
        self.publish(key_parts, blobs, namespace=namespace, failure=failure)
        return key_parts.key

    def put_blob(self, content: bytes, *, namespace: str = "default") -> Blob:
        blob = Blob(hashlib.sha256(content).hexdigest(), len(content))
        room = self.space.admit(namespace, blob.size, blob_path(blob.sha256))
        try:
            was_there = self.storage.store.find_blob(blob.sha256) is not None
            self.storage.store.put_blob(content, blob)
        except BaseException:
            self.space.give_back(room)
            raise
        room.created = not was_there
        self.space.settle(room)
        return blob

    def publish(
        self, key_parts: KeyParts, blobs: list[Blob], *, namespace: str = "default", failure: Failure | None = None
    ) -> None:
        self.now += 1
        manifest = Manifest(
            parts=key_parts,
            files={NEFF_FILE: blobs[0]} if blobs else {},
            epoch=1,
            producer=Producer("h", 1, "u", "cc 2.0", self.now, 2.0),
            created_at=self.now,
            label="label",
            failure=failure,
        )
        Store(self.backend, namespace).put_manifest(manifest)
        row = EntryRow.of_manifest(namespace, manifest, own_bytes=len(manifest.encode()))
        self.index.put_entry(row, done=lambda: self.in_flight.named(blob.sha256 for blob in blobs))

    def use(self, key: str, namespace: str = "default") -> None:
        self.now += 1
        self.index.use(namespace, key, self.now)

    def stored(self, namespace: str = "default") -> set[str]:
        """The keys that the store has."""
        return {manifest.key for manifest in Store(self.backend, namespace).entries()}

    def check(self) -> None:
        """Every manifest has its blobs; the index agrees with the store."""
        self.index.flush()
        snapshot = take_snapshot(self.storage)
        missing = snapshot.references() - snapshot.blobs.keys()
        assert not missing, f"manifests without their blobs: {missing}"
        sizes = sum(found.size for found in snapshot.blobs.values())
        own = sum(entry.found.size for entry in snapshot.entries if entry.found)
        stock = self.index.stock
        assert stock.bytes == sizes + own
        assert stock.blobs == len(snapshot.blobs)

    def close(self) -> None:
        self.collector.close()
        self.election.close()
        self.index.close()

    def _is_new(self) -> None:
        self.made_anew = getattr(self, "made_anew", 0) + 1


@contextmanager
def keeper(*arguments: Any, **options: Any) -> Iterator[Keeper]:
    one = Keeper(*arguments, **options)
    try:
        yield one
    finally:
        one.close()
