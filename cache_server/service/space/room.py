"""Room for one writer, promised before a byte of it is accepted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cache_server.backends import Backend, Found
from cache_server.errors import StoreError
from cache_server.manifest import Blob
from cache_server.service.admission import Held
from cache_server.service.errors import NoSpaceError, QuotaError
from cache_server.service.index import EntryRow, Index
from cache_server.service.space.disk import Disk, DiskUse, reserve_of
from cache_server.service.space.eviction import Evictor
from cache_server.service.space.inflight import InFlight
from cache_server.service.space.ledger import Ledger, Limits, Shortage

_LOOK_SECONDS = 1.0  # how long a look at the disk is good for where there is plenty of room
_PLENTY = 4  # times the disk's reserve
_ATTEMPTS = 4


@dataclass(slots=True)
class Room:
    """A promise of `size` bytes for the object at `path`; without one, for a manifest, whose blobs are in already.

    `created` is set where nothing was there before. A promise ends once, whoever ends it first.
    """

    namespace: str
    size: int
    path: str = ""
    created: bool = False
    settled: bool = False
    ended: bool = False
    space: Space | None = None

    def settle(self, *, created: bool) -> None:
        """As `admission.Promise.settle`."""
        self.created = created
        if self.space is not None:
            self.space.settle(self)


class Space:
    """Keeps what is stored and what is promised within the limits and on the disk, by evicting where need be.

    A promise counts until the index counts what was stored for it, so nothing is ever counted too little. What other
    replicas store counts once a scan has found it; on the disk it counts at once. Safe from every thread.
    """

    def __init__(
        self,
        limits: Limits,
        backend: Backend,
        index: Index,
        evictor: Evictor,
        in_flight: InFlight,
        disk: Disk,
        *,
        wait_for_index: Callable[[], bool] = lambda: False,
        on_fullness: Callable[[], None] = lambda: None,
    ) -> None:
        self.limits = limits
        self._backend = backend
        self._index = index
        self._evictor = evictor
        self._in_flight = in_flight
        self._disk = disk
        self._wait_for_index = wait_for_index
        self._on_fullness = on_fullness
        self._lock = threading.Lock()
        self._ledger = Ledger(limits)
        self._seen: DiskUse | None = None
        self._seen_at = float("-inf")
        self._settled_since = 0  # bytes stored since the last look at the disk

    @property
    def promised(self) -> int:
        with self._lock:
            return self._ledger.promised

    def admit_at_once(self, namespace: str, size: int, path: str = "") -> Room | None:
        """Room where there is plenty; None where that takes a look, or an eviction. Never blocks."""
        with self._lock:
            if time.monotonic() - self._seen_at > _LOOK_SECONDS:
                return None
            if self._seen is not None:
                reserve = reserve_of(self._seen.total, self.limits.keep_free)
                if self._disk_left() - size < _PLENTY * reserve or not self._seen.files:
                    return None
            if self._shortage(namespace, size):
                return None
            return self._promise(namespace, size, path)

    def admit(self, namespace: str, size: int, path: str = "") -> Room:
        """Room for `size` bytes, if need be after evicting. Blocks.

        Raises NoSpaceError or QuotaError where even that makes no room, and StoreError.
        """
        self._refuse_hopeless(namespace, size)
        waited = False
        for _ in range(_ATTEMPTS):
            self._look()
            with self._lock:
                short = self._shortage(namespace, size)
                if not short:
                    return self._promise(namespace, size, path)
            if self._make_room(namespace, size, short):
                continue
            # Before the store has been looked through, nobody knows which blobs may go.
            if waited or self._index.complete or not self._wait_for_index():
                break
            waited = True
        self._look()
        with self._lock:
            short = self._shortage(namespace, size)
            if not short or (not path and not short.disk):
                return self._promise(namespace, size, path)
        raise self._refusal(namespace, size, short)

    def settle(self, room: Room) -> None:
        """Ends a promise whose object is stored. Blocks."""
        room.settled = True
        try:
            found = self._backend.find(room.path)
        except StoreError:
            # It is there, but nobody knows as what: the next scan tells.
            found = Found(room.path, room.size, time.time(), "")
        if found is None:
            self.give_back(room)
            return
        if room.path.startswith("blobs/"):
            self._in_flight.hold(room.namespace, [Blob(room.path.rpartition("/")[2], found.size)], stored=True)
            self._index.put_blob(found, created=room.created, done=lambda: self._end(room, stored=True))
        else:
            self._index.put_entry(EntryRow.of_object(room.namespace, found), done=lambda: self._end(room, stored=True))

    def give_back(self, room: Room) -> None:
        """Ends a promise for which nothing was stored that counts by itself. Never blocks."""
        self._end(room, stored=not room.path)

    def hold(self, namespace: str, blobs: Iterable[Blob]) -> Held:
        """Keeps blobs that are about to be named from being removed."""
        return self._in_flight.hold(namespace, blobs)

    def excess(self) -> int:
        """What the collector should free: for the capacity, and for the reserve of the disk."""
        self._look()
        with self._lock:
            excess = self.limits.excess(self._index.stock.bytes + self._ledger.promised)
            return max(excess, -self._disk_left(), int(self._seen is not None and not self._seen.files))

    def excess_of(self, namespace: str) -> int:
        """What the collector should free of a namespace, for its quota."""
        quota = self.limits.quota_of(namespace)
        return 0 if quota is None else max(0, self._index.stock.of(namespace).bytes - quota)

    def _promise(self, namespace: str, size: int, path: str) -> Room:
        self._ledger.promise(namespace, size)
        return Room(namespace, size, path, space=self)

    def _end(self, room: Room, *, stored: bool) -> None:
        with self._lock:
            if room.ended:
                return
            room.ended = True
            self._ledger.settle(room.namespace, room.size)
            if stored:
                self._settled_since += room.size
            excess = self.limits.excess(self._index.stock.bytes + self._ledger.promised)
        if excess:
            self._on_fullness()

    def _look(self) -> None:
        use = self._disk.use()
        with self._lock:
            self._seen, self._seen_at, self._settled_since = use, time.monotonic(), 0

    def _disk_left(self) -> int:
        """What may be promised of the disk; 0 is none, less than 0 is too little."""
        seen = self._seen
        if seen is None:
            return 1 << 62
        unwritten = max(0, self._ledger.promised - seen.unfinished)
        return seen.free - reserve_of(seen.total, self.limits.keep_free) - unwritten - self._settled_since

    def _shortage(self, namespace: str, size: int) -> Shortage:
        stock = self._index.stock
        disk_free = None
        if self._seen is not None:
            block = self._seen.block
            # A file takes whole blocks, and may need a directory.
            size_on_disk = -(-size // block) * block + block
            disk_free = self._disk_left() - (size_on_disk - size) if self._seen.files else size - 1
        return self._ledger.shortage(
            namespace,
            size,
            stored=stock.bytes,
            stored_by=stock.of(namespace).bytes + self._in_flight.bytes_of(namespace),
            disk_free=disk_free,
        )

    def _make_room(self, namespace: str, size: int, short: Shortage) -> bool:
        """Evicts for what is short; whether anything was freed."""

        def lacking() -> Shortage:
            self._look()
            with self._lock:
                return self._shortage(namespace, size)

        freed = 0
        if short.quota:
            made = self._evictor.make_room(lambda: lacking().quota, "the namespace's quota", namespace=namespace)
            freed += made.bytes
        if lacking().store:
            freed += self._evictor.make_room(lambda: lacking().store, "the store's capacity").bytes
        if lacking().disk:
            freed += self._evictor.make_room(lambda: lacking().disk, "room on the disk").bytes
        return freed > 0

    def _refuse_hopeless(self, namespace: str, size: int) -> None:
        with self._lock:
            exceeded = self._ledger.hopeless(namespace, size)
        if exceeded is None:
            return
        what, limit = exceeded
        if what == "quota":
            raise QuotaError(
                f"{size:,} bytes are more than the whole quota of the namespace {namespace}, {limit:,}",
                hint="ask for a larger quota",
            )
        raise NoSpaceError(f"{size:,} bytes are more than the whole capacity of the store, {limit:,}")

    def _refusal(self, namespace: str, size: int, short: Shortage) -> NoSpaceError | QuotaError:
        if short.quota and not short.store and not short.disk:
            return QuotaError(
                f"the namespace {namespace} has no room for {size:,} bytes: {short.quota:,} are lacking, "
                "and nothing of it may be evicted",
                hint="remove entries or pins of it, or ask for a larger quota",
            )
        what = "the store" if short.store else "the disk of the store"
        return NoSpaceError(
            f"{what} has no room for {size:,} bytes: {max(short.store, short.disk):,} are lacking, "
            "and nothing more may be evicted",
            hint="try again later, or take pins away",
        )
