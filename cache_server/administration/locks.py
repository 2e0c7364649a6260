"""Leases that are held: by whom, since when, and whether their owner still lives."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from cache_server.administration.snapshot import SeenRecord, read_record, read_records
from cache_server.errors import ConflictError
from cache_server.leases.observer import Observer, Vacant
from cache_server.leases.owner import Owner
from cache_server.leases.record import State
from cache_server.leases.records import RecordStore
from cache_server.storage import Storage

_UNREADABLE_LEASE = 15.0  # seconds; what a record that does not tell is given to change
_POLL = 0.1


class Life(StrEnum):
    """What can be said of an owner from here."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"  # on another host, and not watched for long enough


@dataclass(frozen=True, slots=True)
class Hold:
    """A held lease, or a record that cannot be understood (`seen.record` is None)."""

    seen: SeenRecord
    life: Life

    @property
    def lease_seconds(self) -> float:
        """For how long its owner may be silent."""
        return self.seen.record.lease_seconds if self.seen.record else _UNREADABLE_LEASE


def held_leases(storage: Storage, *, since: float = 0.0) -> list[Hold]:
    """The namespace's held leases, the oldest first, judged by one look. Raises StoreError.

    With `since`, in seconds since 1970, records that have not changed from then on may be left out, unread.
    """
    return sort_holds(read_records(storage.records, storage.store.namespace, since=since))


def sort_holds(records: Iterable[SeenRecord]) -> list[Hold]:
    """Which of the records are holds, the oldest first."""
    holds = [Hold(seen, life_of(seen)) for seen in records if seen.record is None or seen.record.state is State.HELD]
    return sorted(holds, key=lambda hold: hold.seen.record.acquired_at if hold.seen.record else 0.0)


def watch(
    records: RecordStore,
    holds: Iterable[Hold],
    *,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> list[Hold]:
    """Watches each lease of an unknown owner until it is renewed, ends, or was silent for its whole length.

    Takes as long as the longest of these leases at most. What ended meanwhile is left out.
    """
    decided = [hold for hold in holds if hold.life is not Life.UNKNOWN]
    watched = [(hold, _observer(hold)) for hold in holds if hold.life is Life.UNKNOWN]
    while watched:
        undecided = []
        for hold, observer in watched:
            now = clock()
            seen = records.read(hold.seen.name)
            verdict = observer.judge(seen, now)
            if seen is None or (isinstance(verdict, Vacant) and seen.version != hold.seen.version):
                continue
            if seen.version != hold.seen.version:
                decided += [replace(again, life=Life.ALIVE) for again in _look_again(records, hold)]
            elif isinstance(verdict, Vacant):
                decided.append(replace(hold, life=Life.DEAD))
            else:
                undecided.append((hold, observer))
        watched = undecided
        if watched:
            pause(_POLL)
    return decided


def free(storage: Storage, hold: Hold, by: Owner) -> bool:
    """Ends a lease: the next who asks gets it under a later epoch, and its owner, if it lives, can publish nothing.

    False if the record changed since it was looked at: its owner lives, or is done.
    """
    try:
        if hold.seen.record is None:
            storage.records.delete_if(hold.seen.name, hold.seen.version)
        else:
            record = hold.seen.record.freed(f"freed by {by}")
            storage.records.compare_and_swap(hold.seen.name, hold.seen.version, record.encode())
    except ConflictError:
        return False
    return True


def _look_again(records: RecordStore, hold: Hold) -> list[Hold]:
    again = read_record(records, hold.seen.name, hold.seen.namespace, hold.seen.key)
    return [] if again is None else sort_holds([again])


def _observer(hold: Hold) -> Observer:
    return Observer(hold.seen.key, default_lease_seconds=_UNREADABLE_LEASE)


def life_of(seen: SeenRecord) -> Life:
    """What this host can say of the owner of a held lease without watching it."""
    if seen.record is None:
        return Life.UNKNOWN
    owner = seen.record.owner
    if owner.is_known_dead():
        return Life.DEAD
    here = Owner.here().incarnation.rpartition("/")[0]
    return Life.ALIVE if here and owner.incarnation.rpartition("/")[0] == here else Life.UNKNOWN
