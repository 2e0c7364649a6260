"""Checking a store, and mending what can be mended."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from cache_server.administration.locks import Hold, Life, free, sort_holds, watch
from cache_server.administration.removal import remove_entry
from cache_server.administration.snapshot import Entry, Obscure, Snapshot, Trouble, take_snapshot
from cache_server.backends import Backend, Found, pieces
from cache_server.blobs import BlobUpload, digest_of
from cache_server.errors import DigestError, StoreError
from cache_server.fields import Fields
from cache_server.leases.owner import Owner
from cache_server.manifest import MANIFEST_LIMIT, Blob
from cache_server.storage import Storage
from cache_server.store import blob_path


class Fault(StrEnum):
    """What can be wrong."""

    MISSING_BLOB = "missing blob"
    DAMAGED_BLOB = "damaged blob"
    ORPHAN_BLOB = "orphan blob"
    EMPTY_FILE = "empty file"
    DAMAGED_MANIFEST = "damaged manifest"
    UNREADABLE = "unreadable"
    CLOSED_MODE = "closed to others"
    BAD_SIGNATURE = "bad signature"
    STALE_LEASE = "stale lease"
    DAMAGED_RECORD = "damaged lease record"


_REPAIRS = {
    Fault.MISSING_BLOB: "remove the entry",
    Fault.DAMAGED_BLOB: "set the blob aside and remove the entry",
    Fault.ORPHAN_BLOB: "remove the blob",
    Fault.EMPTY_FILE: "remove the file",
    Fault.DAMAGED_MANIFEST: "set the manifest aside",
    Fault.UNREADABLE: "none; give this user access",
    Fault.CLOSED_MODE: "write the file anew with the store's permissions",
    Fault.BAD_SIGNATURE: "remove the entry",
    Fault.STALE_LEASE: "free the lease",
    Fault.DAMAGED_RECORD: "remove the record",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault as it is told; `name` is as of a Problem."""

    fault: Fault
    name: str
    detail: str
    repaired: bool = False

    @property
    def repair(self) -> str:
        """What a repair does."""
        return _REPAIRS[self.fault]

    def to_json(self) -> dict[str, Any]:
        return {
            "fault": self.fault.value,
            "name": self.name,
            "detail": self.detail,
            "repair": self.repair,
            "repaired": self.repaired,
        }

    @classmethod
    def from_fields(cls, fields: Fields) -> Finding:
        """What `to_json` gave. Raises ValueError."""
        return cls(
            Fault(fields.text("fault", limit=40)),
            fields.text("name", limit=1000),
            fields.text("detail", limit=4000),
            fields.raw().get("repaired") is True,
        )


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault; `name` is the key of an entry, the path of an object or the SHA-256 of a blob."""

    fault: Fault
    name: str
    detail: str
    target: Entry | Obscure | Found | Hold
    blob: Blob | None = None

    @property
    def repair(self) -> str:
        """What a repair does."""
        return _REPAIRS[self.fault]


def check(
    storage: Storage,
    *,
    now: float,
    grace: float,
    contents: bool = True,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Problem]:
    """Every problem of the namespace and of the blobs that all namespaces share; changes nothing.

    `contents` also reads each blob and compares its SHA-256; `progress` is told the bytes that are done, and all.
    Waits for up to a lease's length where it must watch an owner on another host. `now` is wall time, `grace` the
    seconds for which a blob that nothing names may be a publish on its way. Raises StoreError if the store cannot be
    listed.
    """
    snapshot = take_snapshot(storage)
    namespace = storage.store.namespace
    problems = [_obscure_problem(it) for it in snapshot.obscure if it.namespace == namespace and _is_fault(it)]
    verdicts: dict[Blob, tuple[Fault, str] | None] = {}
    entries = snapshot.within(namespace)
    done, total = 0, sum(blob.size for blob in {blob for entry in entries for blob in entry.blobs})
    for entry in entries:
        for blob in sorted(entry.blobs, key=lambda blob: blob.sha256):
            if blob not in verdicts:
                verdicts[blob] = _judge_blob(storage, snapshot, blob, contents)
                done += blob.size
                progress(done, total)
            if (verdict := verdicts[blob]) is not None:
                fault, detail = verdict
                problems.append(Problem(fault, entry.key, f"blob {blob.sha256[:12]} {detail}", entry, blob))
        problems += _signature_problems(storage, entry)
        if entry.found is not None and not entry.found.readable_by_all:
            problems.append(Problem(Fault.CLOSED_MODE, entry.found.path, "not everybody can read it", entry.found))
    problems += _blob_problems(snapshot, before=now - grace)
    problems += _lease_problems(storage, snapshot)
    return problems


def repair(storage: Storage, problem: Problem, by: Owner) -> bool:
    """Mends one problem; False if that cannot be done, or if what was found is no longer so. Raises StoreError."""
    target = problem.target
    match problem.fault, target:
        case ((Fault.MISSING_BLOB | Fault.DAMAGED_BLOB), Entry()):
            assert problem.blob is not None
            # Sets a damaged one aside; and whoever stored it again since then has mended the entry.
            whole = storage.store.verify_blob(problem.blob)
            return whole or remove_entry(storage, target, even_pinned=True)
        case Fault.BAD_SIGNATURE, Entry():
            return remove_entry(storage, target, even_pinned=True)
        case ((Fault.EMPTY_FILE | Fault.ORPHAN_BLOB), Found()):
            return storage.store.backend.remove(target)
        case Fault.DAMAGED_MANIFEST, Obscure():
            usable = storage.store.read_manifest(target.key) is not None
            return usable or storage.store.backend.read(target.found.path, 0) is None
        case Fault.CLOSED_MODE, Found():
            return _write_anew(storage, target)
        case ((Fault.STALE_LEASE | Fault.DAMAGED_RECORD), Hold()):
            return free(storage, target, by)
        case _:
            return False


def _is_fault(obscure: Obscure) -> bool:
    return obscure.trouble is not Trouble.LATER


def _obscure_problem(obscure: Obscure) -> Problem:
    path = obscure.found.path
    if obscure.trouble is Trouble.EMPTY:
        return Problem(Fault.EMPTY_FILE, path, obscure.why, obscure.found)
    fault = Fault.UNREADABLE if obscure.trouble is Trouble.UNREADABLE else Fault.DAMAGED_MANIFEST
    return Problem(fault, path, obscure.why, obscure)


def _signature_problems(storage: Storage, entry: Entry) -> Iterator[Problem]:
    """What a reader with these settings would refuse, in the entry or in the record that it was published by."""
    if storage.store.trust is None:
        return
    verifier = storage.store.trust.verifier
    settled = entry.record.record.settled if entry.record and entry.record.record else None
    for manifest in (entry.manifest, settled):
        why = None if manifest is None else verifier.objection(manifest, entry.namespace)
        if why is not None:
            yield Problem(Fault.BAD_SIGNATURE, entry.key, f"its manifest is {why}", entry)
            return


def _judge_blob(storage: Storage, snapshot: Snapshot, blob: Blob, contents: bool) -> tuple[Fault, str] | None:
    found = snapshot.blobs.get(blob.sha256)
    if found is not None and not contents:
        return None if found.size == blob.size else _wrong_size(blob)
    # One that is not in the snapshot may have been stored after it.
    try:
        content = storage.store.open_blob(blob.sha256)
        if content is None:
            return Fault.MISSING_BLOB, "is missing"
        with contextlib.closing(content):
            if content.size != blob.size:
                return _wrong_size(blob)
            if digest_of(content) != blob.sha256:
                return Fault.DAMAGED_BLOB, "does not have the SHA-256 that names it"
    except StoreError as error:
        return Fault.UNREADABLE, f"cannot be read: {error.message}"
    return None


def _wrong_size(blob: Blob) -> tuple[Fault, str]:
    return Fault.DAMAGED_BLOB, f"is not {blob.size} bytes long"


def _blob_problems(snapshot: Snapshot, *, before: float) -> Iterator[Problem]:
    named = snapshot.references()
    for sha256, found in sorted(snapshot.blobs.items()):
        if not found.readable_by_all:
            yield Problem(Fault.CLOSED_MODE, found.path, "not everybody can read it", found)
        if sha256 in named or snapshot.blind or found.modified_at >= before:
            continue
        if found.size == 0:
            yield Problem(Fault.EMPTY_FILE, found.path, "has no content", found)
        else:
            yield Problem(Fault.ORPHAN_BLOB, sha256, f"no entry names its {found.size} bytes", found)


def _lease_problems(storage: Storage, snapshot: Snapshot) -> Iterator[Problem]:
    own = [seen for seen in snapshot.records if seen.namespace == storage.store.namespace]
    for hold in watch(storage.records, sort_holds(own)):
        if hold.seen.record is None:
            if hold.life is Life.DEAD:
                yield Problem(Fault.DAMAGED_RECORD, hold.seen.key, hold.seen.why, hold)
        elif hold.life is Life.DEAD:
            owner = hold.seen.record.owner
            yield Problem(Fault.STALE_LEASE, hold.seen.key, f"{owner} gives no sign of life", hold)


def _write_anew(storage: Storage, found: Found) -> bool:
    backend = storage.store.backend
    if found.path.startswith("blobs/"):
        return _write_blob_anew(backend, found)
    data = backend.read(found.path, MANIFEST_LIMIT)
    return data is not None and backend.remove_if(found.path, data) and backend.create(found.path, data)


def _write_blob_anew(backend: Backend, found: Found) -> bool:
    sha256 = found.path.rpartition("/")[2]
    content = backend.open(blob_path(sha256))
    if content is None:
        return False
    with contextlib.closing(content):
        upload = BlobUpload(Blob(sha256, content.size), backend.receive(found.path, content.size))
        try:
            for piece in pieces(content):
                upload.append(piece)
            # Only what is whole: over a copy that somebody stores meanwhile it is then the same.
            upload.finish()
        except DigestError:
            return False
        finally:
            upload.abort()
    return True
