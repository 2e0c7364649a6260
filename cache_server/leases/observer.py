"""What somebody who wants a lease may conclude from the record it sees. Pure: the clock is handed in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cache_server.leases.owner import Owner
from cache_server.leases.record import LeaseRecord, State, decode_record
from cache_server.leases.records import Versioned
from cache_server.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Vacant:
    """Nobody holds the key: it may be claimed over `version` (None: no record yet).

    `expired` is the owner that stopped renewing, if there was one: claiming is then a takeover.
    """

    epoch: int
    version: str | None
    expired: Owner | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """Somebody is at work and has shown a sign of life within its lease. Ages are seconds.

    `record` is None when the record could not be understood; it is then given the default lease to change.
    """

    record: LeaseRecord | None
    unchanged_for: float
    expires_in: float


@dataclass(frozen=True, slots=True)
class Settled:
    """The key was published. Claim over `version` only if what it names proves unusable."""

    manifest: Manifest
    epoch: int
    version: str


Verdict = Vacant | Held | Settled


class Observer:
    """Watches the record of one key.

    A lease has expired once its record was seen UNCHANGED for its whole duration on this process's monotonic clock:
    no two clocks are ever compared, and a host whose clock is wrong harms nobody.
    """

    def __init__(
        self,
        key: str,
        *,
        default_lease_seconds: float,
        is_known_dead: Callable[[Owner], bool] = Owner.is_known_dead,
    ) -> None:
        self._key = key
        self._default_lease_seconds = default_lease_seconds
        self._is_known_dead = is_known_dead
        self._version: str | None = None
        self._first_seen = 0.0

    def judge(self, seen: Versioned | None, now: float) -> Verdict:
        """`now` is this process's monotonic clock in seconds, read before the record was."""
        if seen is None:
            self._version = None
            return Vacant(epoch=0, version=None)
        if seen.version != self._version:
            self._version, self._first_seen = seen.version, now
        try:
            record = decode_record(seen.data, key=self._key)
        except ValueError:
            return self._judge_unreadable(seen.version, now)
        if record.state is State.FREE:
            return Vacant(record.epoch, seen.version)
        if record.settled is not None:
            return Settled(record.settled, record.epoch, seen.version)
        unchanged = now - self._first_seen
        if unchanged >= record.lease_seconds or self._is_known_dead(record.owner):
            return Vacant(record.epoch, seen.version, expired=record.owner)
        return Held(record, unchanged, record.lease_seconds - unchanged)

    def _judge_unreadable(self, version: str, now: float) -> Verdict:
        unchanged = now - self._first_seen
        if unchanged >= self._default_lease_seconds:
            return Vacant(epoch=0, version=version)
        return Held(None, unchanged, self._default_lease_seconds - unchanged)
