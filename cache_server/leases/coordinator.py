"""What a request needs in order to be the only one of the fleet that compiles a key."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from cache_server.leases.lease import Lease
from cache_server.leases.observer import Observer, Settled, Vacant, Verdict
from cache_server.leases.owner import Owner
from cache_server.leases.probe import probe
from cache_server.leases.records import RecordStore
from cache_server.manifest import Manifest

_SHORTEST_POLL = 0.01
_LONGEST_POLL = 1.0
_POLL_SHARE = 0.02  # of a waiter's time that looking may take: a slow mount is asked less often


class HeldLease(Protocol):
    """The right to compile one key. After a takeover every change raises LeaseLostError.

    `phase` is what the next renewal tells waiters; `seconds` is how long the lease lives without one. `lists` says
    that publishing also puts the manifest where readers look first. Safe to use from several threads. Methods raise
    StoreError when the place cannot be used.
    """

    phase: str

    @property
    def epoch(self) -> int: ...

    @property
    def seconds(self) -> float: ...

    @property
    def lost(self) -> bool: ...

    @property
    def lists(self) -> bool: ...

    def renew(self) -> None:
        """Shows waiters a sign of life and the current phase."""
        ...

    def publish(self, manifest: Manifest) -> None:
        """Settles the key with `manifest`, whose blobs must be in the store."""
        ...

    def release(self, note: str = "") -> None:
        """Frees the key without a result. Does nothing once the lease is settled, free or lost."""
        ...


class Watch(Protocol):
    """One request's view of one key's lease. For one thread at a time."""

    def look(self, wait: float = 0.0) -> Verdict:
        """The state of the key; waits up to `wait` seconds for a change, and may return sooner without one.

        The first look never waits. Raises StoreError.
        """
        ...

    def claim(
        self, over: Vacant | Settled, *, owner: Owner, lease_seconds: float, at_least_epoch: int = 1, label: str = ""
    ) -> HeldLease:
        """Takes the key. Raises ConflictError if somebody else was faster: look again. Raises StoreError.

        Raises NotExclusiveError where only now it shows that two could hold one lease.
        """
        ...

    def close(self) -> None:
        """Ends the view. It may not be used any more."""
        ...


class Coordinator(Protocol):
    """Whoever hands out the leases of one namespace."""

    def prove(self) -> None:
        """Raises NotExclusiveError where two could hold one lease, StoreError where none can be had at all."""
        ...

    def watch(self, key: str) -> Watch: ...


class RecordCoordinator:
    """Leases that the requests themselves keep, in records that change by compare-and-swap."""

    def __init__(self, records: RecordStore, name_of: Callable[[str], str], *, default_lease_seconds: float) -> None:
        self._records = records
        self._name_of = name_of
        self._default_lease_seconds = default_lease_seconds

    def prove(self) -> None:
        probe(self._records)

    def watch(self, key: str) -> RecordWatch:
        observer = Observer(key, default_lease_seconds=self._default_lease_seconds)
        return RecordWatch(self._records, self._name_of(key), observer)


class RecordWatch:
    """Polls the record of one key."""

    def __init__(self, records: RecordStore, name: str, observer: Observer) -> None:
        self._records = records
        self._name = name
        self._observer = observer
        # The quickest look so far tells a slow mount from a busy moment.
        self._quickest = _LONGEST_POLL
        self._looked = False

    def look(self, wait: float = 0.0) -> Verdict:
        if self._looked:
            poll = min(max(self._quickest / _POLL_SHARE, _SHORTEST_POLL), _LONGEST_POLL)
            time.sleep(max(0.0, min(poll, wait)))
        self._looked = True
        looked_at = time.monotonic()
        verdict = self._observer.judge(self._records.read(self._name), looked_at)
        self._quickest = min(self._quickest, time.monotonic() - looked_at)
        return verdict

    def claim(
        self, over: Vacant | Settled, *, owner: Owner, lease_seconds: float, at_least_epoch: int = 1, label: str = ""
    ) -> Lease:
        return Lease.claim(
            self._records,
            self._name,
            over,
            owner=owner,
            lease_seconds=lease_seconds,
            at_least_epoch=at_least_epoch,
            label=label,
        )

    def close(self) -> None:
        """Holds nothing."""
