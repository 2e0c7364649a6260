"""What the holder of a lease does through the service: each act is one compare-and-swap in the store.

The store's record is all there is. So any replica can serve any act of any holder, and one that dies loses nothing.
Functions may block, and raise StoreError when the place cannot be used.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import replace

from cache_server.errors import ConflictError, LeaseLostError
from cache_server.leases.owner import Owner
from cache_server.leases.record import LeaseRecord, State, decode_record
from cache_server.leases.records import RecordStore, Versioned
from cache_server.manifest import Manifest

_ATTEMPTS = 10


def heartbeat(records: RecordStore, name: str, token: str, epoch: int, phase: str) -> Versioned:
    """Shows a sign of life. Raises LeaseLostError if the lease is not the sender's."""

    def renewed(record: LeaseRecord) -> LeaseRecord:
        if record.state is State.FREE:
            raise LeaseLostError(f"the lease of epoch {epoch} was ended: {record.note}")
        return record.renewed(phase) if record.state is State.HELD else record

    return _change(records, name, token, epoch, renewed)


def publish(records: RecordStore, name: str, token: str, epoch: int, manifest: Manifest) -> Versioned:
    """Settles the key with `manifest`, whose blobs are there. Said twice, it is done once.

    Raises LeaseLostError if the lease is not the sender's, or is settled with something else.
    """

    def published(record: LeaseRecord) -> LeaseRecord:
        if record.state is State.HELD:
            return record.published(manifest)
        if record.settled is not None and _equal(record.settled, manifest):
            return record
        raise LeaseLostError(f"the lease of epoch {epoch} is {record.state} already")

    return _change(records, name, token, epoch, published)


def release(records: RecordStore, name: str, token: str, epoch: int, note: str) -> Versioned:
    """Frees the key without a result; what was published stays. Raises LeaseLostError if it is not the sender's."""

    def released(record: LeaseRecord) -> LeaseRecord:
        return record.released(note) if record.state is State.HELD else record

    return _change(records, name, token, epoch, released)


def free(records: RecordStore, name: str, seen: Versioned, by: str) -> Versioned:
    """For an administrator: ends whatever lease `seen` is. Raises ConflictError if it has changed since."""
    try:
        record = decode_record(seen.data, key=name.rpartition("/")[2])
    except ValueError:
        # Nothing can be kept of it but the place: the epoch starts anew.
        record = LeaseRecord(State.FREE, 0, "", Owner("unknown", 0, "unknown"), 0.0, "released", 0.0)
    data = record.freed(f"freed by {by}").encode()
    return Versioned(data, records.compare_and_swap(name, seen.version, data))


def _change(
    records: RecordStore, name: str, token: str, epoch: int, act: Callable[[LeaseRecord], LeaseRecord]
) -> Versioned:
    for _ in range(_ATTEMPTS):
        seen = records.read(name)
        record = _owned(seen, name, token, epoch)
        assert seen is not None
        changed = act(record)
        if changed is record:
            return seen
        data = changed.encode()
        try:
            return Versioned(data, records.compare_and_swap(name, seen.version, data))
        except ConflictError:
            continue  # a heartbeat of the same holder, or a takeover: the next look tells
    raise ConflictError(f"the lease record {name} keeps changing")


def _owned(seen: Versioned | None, name: str, token: str, epoch: int) -> LeaseRecord:
    if seen is None:
        raise LeaseLostError("there is no lease on this key any more")
    try:
        record = decode_record(seen.data, key=name.rpartition("/")[2])
    except ValueError as error:
        raise LeaseLostError(f"the lease record of this key was damaged: {error}") from None
    if record.epoch == epoch and hmac.compare_digest(record.token.encode(), token.encode()):
        return record
    raise LeaseLostError(f"the lease of epoch {epoch} was taken over by {record.owner} with epoch {record.epoch}")


def _equal(one: Manifest, other: Manifest) -> bool:
    """Whether both say the same of the same compile; when it was said does not matter."""
    return one.same_content(other) or replace(one, created_at=other.created_at, signature=other.signature) == other
