"""A lease that this process holds."""

from __future__ import annotations

import os
import threading
import time

from cache_server.errors import ConflictError, LeaseLostError
from cache_server.leases.observer import Settled, Vacant
from cache_server.leases.owner import Owner
from cache_server.leases.record import LeaseRecord, State, decode_record
from cache_server.leases.records import RecordStore, Versioned
from cache_server.manifest import Manifest


class Lease:
    """The right to compile one key, until `publish`, `release`, or somebody takes it over.

    Every change is a compare-and-swap on the version this holder wrote last. So it succeeds only while nobody else
    has changed the record, and after a takeover every method raises LeaseLostError. Safe to use from the heartbeat's
    thread and the compiling one at once. Methods raise StoreError when the place cannot be used.
    """

    def __init__(self, records: RecordStore, name: str, record: LeaseRecord, version: str) -> None:
        self.phase = record.phase  # what the next renewal tells waiters
        self._records = records
        self._name = name
        self._record = record
        self._version = version
        self._lost = False
        self._lock = threading.Lock()

    @classmethod
    def claim(
        cls,
        records: RecordStore,
        name: str,
        over: Vacant | Settled,
        *,
        owner: Owner,
        lease_seconds: float,
        at_least_epoch: int = 1,
        label: str = "",
        token: str | None = None,
    ) -> Lease:
        """Takes the key. Raises ConflictError if somebody else was faster: look at the record again.

        The epoch is one more than the record's, and no less than `at_least_epoch`. `token` is random unless given.
        """
        record = LeaseRecord(
            state=State.HELD,
            epoch=max(over.epoch + 1, at_least_epoch),
            token=token or os.urandom(16).hex(),
            owner=owner,
            lease_seconds=lease_seconds,
            phase="acquired",
            acquired_at=time.time(),
            label=label[:200],
        )
        data = record.encode()
        if over.version is None:
            version = records.create_exclusive(name, data)
        else:
            version = records.compare_and_swap(name, over.version, data)
        return cls(records, name, record, version)

    @property
    def epoch(self) -> int:
        return self._record.epoch

    @property
    def token(self) -> str:
        """The secret of this acquisition; whoever has it may change the lease."""
        return self._record.token

    @property
    def current(self) -> Versioned:
        """The record as this holder wrote it last."""
        return Versioned(self._record.encode(), self._version)

    @property
    def seconds(self) -> float:
        return self._record.lease_seconds

    @property
    def lost(self) -> bool:
        """True once a takeover was noticed; False proves nothing, only a successful change does."""
        return self._lost

    @property
    def lists(self) -> bool:
        """False: whoever publishes puts the manifest under the entries as well."""
        return False

    def renew(self) -> None:
        """Shows waiters a sign of life and the current phase. Does nothing once the record is no longer held."""
        with self._lock:
            if self._record.state is State.HELD:
                self._swap(self._record.renewed(self.phase))

    def publish(self, manifest: Manifest) -> None:
        """Settles the key with `manifest`, whose blobs must be in the store. From here on it is published."""
        with self._lock:
            self._swap(self._record.published(manifest))

    def release(self, note: str = "") -> None:
        """Frees the key without a result, so that the next waiter need not wait for the lease to expire.

        Does nothing once the record is no longer held: what was published stays.
        """
        with self._lock:
            if self._record.state is State.HELD:
                self._swap(self._record.released(note))

    def _swap(self, record: LeaseRecord) -> None:
        if self._lost:
            raise self._taken()
        try:
            self._version = self._records.compare_and_swap(self._name, self._version, record.encode())
        except ConflictError as error:
            self._lost = True
            raise self._taken() from error
        self._record = record

    def _taken(self) -> LeaseLostError:
        return LeaseLostError(
            f"the lease of epoch {self.epoch} was taken over{self._successor()}; its result is not published"
        )

    def _successor(self) -> str:
        seen = self._records.read(self._name)
        if seen is None:
            return ""
        try:
            record = decode_record(seen.data, key=self._name.rpartition("/")[2])
        except ValueError:
            return ""
        return f" by {record.owner} with epoch {record.epoch}"
