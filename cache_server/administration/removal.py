"""Taking things out of a store: a plan as data, and its execution step by step."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cache_server.administration.pins import is_pinned
from cache_server.administration.snapshot import Entry, SeenRecord, Snapshot, read_record
from cache_server.backends import Found
from cache_server.errors import ConflictError
from cache_server.fields import Fields
from cache_server.leases.record import State
from cache_server.manifest import MANIFEST_LIMIT, Blob, decode_manifest
from cache_server.storage import Storage


class Kind(StrEnum):
    """What a step removes."""

    ENTRY = "entry"
    FAILURE = "failure"
    BLOB = "blob"
    RECORD = "lease record"
    STAGED = "staged file"
    QUARANTINED = "quarantined file"


@dataclass(frozen=True, slots=True)
class Thing:
    """What is to be removed, or was. `size` is what that frees, in bytes; an entry's own is its manifest alone."""

    kind: Kind
    name: str
    size: int
    reason: str

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind.value, "name": self.name, "bytes": self.size, "reason": self.reason}

    @classmethod
    def from_fields(cls, fields: Fields) -> Thing:
        """What `to_json` gave. Raises ValueError."""
        return cls(
            Kind(fields.text("kind", limit=40)),
            fields.text("name", limit=1000),
            fields.integer("bytes", low=0, high=1 << 62),
            fields.text("reason", limit=1000),
        )


@dataclass(frozen=True, slots=True)
class Step(Thing):
    """One removal: of exactly what `target` is."""

    target: Entry | SeenRecord | Found


@dataclass(frozen=True, slots=True)
class Plan:
    """What would be removed, in order: manifests come before the blobs they name. `notes` are for people."""

    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Bytes that it would free."""
        return sum(step.size for step in self.steps)


@dataclass(frozen=True, slots=True)
class Removed:
    """What was removed, and what had changed or gone meanwhile and so was left alone."""

    done: tuple[Thing, ...]
    left: tuple[Thing, ...]

    @property
    def size(self) -> int:
        """Bytes freed."""
        return sum(step.size for step in self.done)


def plan_entries(snapshot: Snapshot, reasons: Iterable[tuple[Entry, str]]) -> list[Step]:
    """Steps that remove entries, each for a reason, and then the blobs that nothing names any more.

    Without the blobs where the snapshot has manifests that cannot be understood; `blind_note` says so.
    """
    chosen = list(reasons)
    steps = []
    for entry, reason in chosen:
        kind = Kind.FAILURE if entry.is_failure else Kind.ENTRY
        steps.append(Step(kind, entry.key, entry.found.size if entry.found else 0, reason, entry))
    if snapshot.blind:
        return steps
    kept = snapshot.references(without=[entry for entry, _ in chosen])
    orphaned = {blob.sha256 for entry, _ in chosen for blob in named_blobs(entry)} - kept
    for sha256 in sorted(orphaned & snapshot.blobs.keys()):
        found = snapshot.blobs[sha256]
        steps.append(Step(Kind.BLOB, sha256, found.size, "no entry names it any more", found))
    return steps


def blind_note(snapshot: Snapshot) -> list[str]:
    """Why no blobs are removed, if so: what obscure manifests name cannot be told from what nobody names."""
    blind = snapshot.blind
    return [f"no blobs are removed: {len(blind)} manifests cannot be understood ({blind[0].why})"] if blind else []


def named_blobs(entry: Entry) -> frozenset[Blob]:
    """What the entry's manifest and its lease record name; they differ for a moment at each publish."""
    record = entry.record.record if entry.record else None
    settled = record.settled if record else None
    return entry.blobs | (frozenset(settled.files.values()) if settled else frozenset())


def carry_out(
    storage: Storage,
    plan: Plan,
    *,
    step_done: Callable[[Step], None] = lambda step: None,
    step_removed: Callable[[Step], None] = lambda step: None,
) -> Removed:
    """Executes a plan. Raises StoreError; what was done until then stays done, and a new plan does the rest.

    A blob stays if an entry that names it stayed. `step_done` hears of every step, `step_removed` of those that took
    something away.
    """
    done: list[Step] = []
    left: list[Step] = []
    kept: set[str] = set()
    for step in plan.steps:
        removed = not (step.kind is Kind.BLOB and step.name in kept) and _remove(storage, step.target)
        if not removed and isinstance(step.target, Entry):
            kept |= {blob.sha256 for blob in named_blobs(step.target)}
        (done if removed else left).append(step)
        if removed:
            step_removed(step)
        step_done(step)
    return Removed(tuple(done), tuple(left))


def remove_entry(storage: Storage, entry: Entry, *, even_pinned: bool = False) -> bool:
    """Frees the lease record, then removes the manifest; the blobs stay.

    False if it is pinned, or if another result is there by now. The record goes first, because whoever finds a
    published one lists its manifest again.
    """
    store = storage.store
    if not even_pinned and is_pinned(store, entry.key):
        return False
    name = store.record_name(entry.key)
    seen = read_record(storage.records, name, store.namespace, entry.key)
    if seen is not None and seen.record is not None and seen.record.state is State.SETTLED:
        if entry.record is None or entry.record.version != seen.version:
            return False
        freed = seen.record.freed(f"its entry was removed at {time.time():.0f}")
        try:
            storage.records.compare_and_swap(name, seen.version, freed.encode())
        except ConflictError:
            return False
    return _remove_manifest(storage, entry)


def _remove_manifest(storage: Storage, entry: Entry) -> bool:
    if entry.found is None:
        return True
    backend = storage.store.backend
    data = backend.read(entry.found.path, MANIFEST_LIMIT)
    if data is None:
        return True
    with contextlib.suppress(ValueError):
        if decode_manifest(data, key=entry.key) == entry.manifest:
            return backend.remove_if(entry.found.path, data)
    return False


def _remove(storage: Storage, target: Entry | SeenRecord | Found) -> bool:
    if isinstance(target, Entry):
        return remove_entry(storage, target)
    if isinstance(target, Found):
        return storage.store.backend.remove(target)
    try:
        storage.records.delete_if(target.name, target.version)
    except ConflictError:
        return False
    return True
