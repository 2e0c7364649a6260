"""A store as one pass over it saw it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

from cache_server.administration.pins import pinned_keys
from cache_server.administration.summary import Summary
from cache_server.backends import Backend, Found
from cache_server.errors import StoreError
from cache_server.leases.record import LeaseRecord, decode_record
from cache_server.leases.records import RecordStore
from cache_server.manifest import MANIFEST_LIMIT, Blob, Manifest, UnknownSchemaError, decode_manifest
from cache_server.names import is_digest
from cache_server.storage import Storage


class Trouble(StrEnum):
    """Why nothing can be said of what a manifest names."""

    EMPTY = "empty"
    DAMAGED = "damaged"
    UNREADABLE = "unreadable"
    LATER = "later"  # written by a later version of this program


@dataclass(frozen=True, slots=True)
class SeenRecord:
    """A lease record; `record` is None, and `why` not empty, where it cannot be understood."""

    namespace: str
    key: str
    name: str
    version: str
    record: LeaseRecord | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One key with a result. `found` is its manifest in the listing, None where only the lease record carries it."""

    namespace: str
    key: str
    manifest: Manifest
    found: Found | None
    record: SeenRecord | None = None
    pinned: bool = False

    @property
    def blobs(self) -> frozenset[Blob]:
        return frozenset(self.manifest.files.values())

    @property
    def size(self) -> int:
        """Bytes of its files, a content that two of them share counted once."""
        return sum(blob.size for blob in self.blobs)

    @property
    def is_failure(self) -> bool:
        return self.manifest.failure is not None

    @property
    def label(self) -> str:
        return self.manifest.label

    @property
    def created_at(self) -> float:
        return self.manifest.created_at

    @property
    def summary(self) -> Summary:
        """The line of a listing."""
        manifest = self.manifest
        return Summary(
            self.key,
            self.is_failure,
            manifest.label,
            self.size,
            manifest.created_at,
            manifest.producer.compile_seconds,
            manifest.producer.host,
            manifest.epoch,
            self.pinned,
            manifest.failure.expires_at if manifest.failure else None,
        )

    @property
    def saved_seconds(self) -> float:
        """What each hit saves."""
        return 0.0 if self.is_failure else self.manifest.producer.compile_seconds


@dataclass(frozen=True, slots=True)
class Obscure:
    """A manifest that cannot be understood."""

    namespace: str
    key: str
    found: Found
    trouble: Trouble
    why: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`entries`, `records` and `obscure` are those of every namespace; blobs are shared by all of them."""

    entries: tuple[Entry, ...]
    records: tuple[SeenRecord, ...] = ()
    obscure: tuple[Obscure, ...] = ()
    blobs: dict[str, Found] = field(default_factory=dict)  # by SHA-256

    def within(self, namespace: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.namespace == namespace]

    @property
    def blind(self) -> list[Obscure]:
        """The manifests that may be whole, yet do not tell this process what they name."""
        return [it for it in self.obscure if it.trouble in (Trouble.LATER, Trouble.UNREADABLE)]

    def references(self, *, without: Iterable[Entry] = ()) -> set[str]:
        """The SHA-256 of every blob that anything names, leaving out the entries `without`."""
        gone = {(entry.namespace, entry.key) for entry in without}
        kept = {blob.sha256 for e in self.entries if (e.namespace, e.key) not in gone for blob in e.blobs}
        for seen in self.records:
            if (seen.namespace, seen.key) not in gone and seen.record is not None and seen.record.settled is not None:
                kept |= {blob.sha256 for blob in seen.record.settled.files.values()}
        return kept


def take_snapshot(storage: Storage) -> Snapshot:
    """Reads everything but the blobs' content. Raises StoreError if any part of the store cannot be listed.

    Blobs are looked at before what may name them, and a blob is written anew by whoever publishes it. So one that
    nothing in the snapshot names, and that `Backend.remove` still finds unchanged, is in nobody's use.
    """
    backend = storage.store.backend
    blobs = {name: found for found in backend.scan("blobs") if is_digest(name := found.path.rpartition("/")[2])}
    records = tuple(read_records(storage.records))
    entries, obscure = _read_manifests(backend, "entries")
    namespaces = {entry.namespace for entry in entries} | {seen.namespace for seen in records}
    pinned = {namespace: pinned_keys(backend, namespace) for namespace in namespaces}
    by_key = {(seen.namespace, seen.key): seen for seen in records}
    listed = [
        replace(entry, record=by_key.get((entry.namespace, entry.key)), pinned=entry.key in pinned[entry.namespace])
        for entry in entries
    ]
    present = {(entry.namespace, entry.key) for entry in entries} | {(it.namespace, it.key) for it in obscure}
    unlisted = [
        Entry(namespace, key, seen.record.settled, None, seen, pinned=key in pinned[namespace])
        for (namespace, key), seen in by_key.items()
        if (namespace, key) not in present and seen.record is not None and seen.record.settled is not None
    ]
    return Snapshot(tuple(listed + unlisted), records, tuple(obscure), blobs)


def listed_entries(storage: Storage) -> tuple[list[Entry], list[Obscure]]:
    """The namespace's entries as readers find them, without a look at lease records or blobs."""
    store = storage.store
    entries, obscure = _read_manifests(store.backend, f"entries/{store.namespace}")
    pinned = pinned_keys(store.backend, store.namespace)
    return [replace(entry, pinned=entry.key in pinned) for entry in entries], obscure


def look_at(storage: Storage, key: str) -> Entry | None:
    """One entry of the namespace, as it is now; None if there is none, or a damaged one. Raises UnknownSchemaError."""
    store = storage.store
    path = store.entry_path(key)
    record = read_record(storage.records, store.record_name(key), store.namespace, key)
    data = store.backend.read(path, MANIFEST_LIMIT)
    if data is None:
        settled = record.record.settled if record is not None and record.record is not None else None
        return None if settled is None else Entry(store.namespace, key, settled, None, record)
    try:
        manifest = decode_manifest(data, key=key)
    except UnknownSchemaError:
        raise
    except ValueError:
        return None
    return Entry(store.namespace, key, manifest, Found(path, len(data), 0.0, ""), record)


def read_records(records: RecordStore, namespace: str = "", *, since: float = 0.0) -> Iterator[SeenRecord]:
    """The lease records of one namespace, or of all; if it can be told, only those changed since (by the store)."""
    for name in records.names(namespace, since=since):
        place, _, key = name.rpartition("/")
        if is_digest(key) and (seen := read_record(records, name, place.partition("/")[0], key)) is not None:
            yield seen


def read_record(records: RecordStore, name: str, namespace: str, key: str) -> SeenRecord | None:
    versioned = records.read(name)
    if versioned is None:
        return None
    try:
        return SeenRecord(namespace, key, name, versioned.version, decode_record(versioned.data, key=key))
    except ValueError as error:
        return SeenRecord(namespace, key, name, versioned.version, None, str(error))


def _read_manifests(backend: Backend, prefix: str) -> tuple[list[Entry], list[Obscure]]:
    entries, obscure = [], []
    for found in backend.scan(prefix):
        parts = found.path.split("/")
        key = parts[-1].removesuffix(".json")
        if len(parts) != 4 or not is_digest(key):
            continue
        namespace = parts[1]
        trouble, why = Trouble.EMPTY, "has no content"
        try:
            data = backend.read(found.path, MANIFEST_LIMIT)
            if data is None:
                continue  # removed since it was listed
            if data:
                entries.append(Entry(namespace, key, decode_manifest(data, key=key), found))
                continue
        except StoreError as error:
            trouble, why = Trouble.UNREADABLE, error.message
        except UnknownSchemaError as error:
            trouble, why = Trouble.LATER, str(error)
        except ValueError as error:
            trouble, why = Trouble.DAMAGED, str(error)
        obscure.append(Obscure(namespace, key, found, trouble, why))
    return entries, obscure
