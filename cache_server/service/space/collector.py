"""Collection in the background: what is overdue, what is over a limit, what nothing names."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cache_server.administration.collection import HOUR, WEEK, Policy, plan_leftovers
from cache_server.administration.retention import Candidate, overdue
from cache_server.administration.usage import merge_batches, put_batch
from cache_server.backends import Found
from cache_server.errors import ConflictError, StoreError
from cache_server.service.index import Index, Scanner
from cache_server.service.index.scan import StoppedError
from cache_server.service.space.election import Election
from cache_server.service.space.eviction import Evictor, Freed
from cache_server.service.space.room import Space
from cache_server.storage import Storage

_PAGE = 256

log = logging.getLogger("neuron_env.cache.server")


@dataclass(frozen=True, slots=True)
class Pace:
    """How often things are done, in seconds.

    scan: between two looks through the store for what others did
    share: between two batches of last uses for other replicas
    collect: between two collections by the elected replica
    grace: how old a blob must be that nothing names, since it may be a publish on its way
    """

    scan: float = 900.0
    share: float = 60.0
    collect: float = 300.0
    grace: float = HOUR


class Collector:
    """One thread that scans, shares last uses, and collects while `election` has this replica elected.

    `round` may also be called by others; one runs at a time.
    """

    def __init__(
        self,
        storage: Storage,
        index: Index,
        space: Space,
        evictor: Evictor,
        election: Election,
        *,
        replica: str,
        pace: Pace,
        stopped: threading.Event,
    ) -> None:
        self._storage = storage
        self._backend = storage.store.backend
        self._index = index
        self._space = space
        self._evictor = evictor
        self._election = election
        self._replica = replica
        self._pace = pace
        self._stopped = stopped
        self._scanner = Scanner(storage, index, stopped=stopped.is_set)
        self._one = threading.Lock()
        self._wake = threading.Event()
        self._scan_asked = True
        self._scanned = threading.Event()
        self._idle_until = 0.0
        self._thread = threading.Thread(target=self._run, name="neuron-env-collector", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, if need be in the middle of a scan, and shares the last uses."""
        self._stopped.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=30.0)
            self._guarded(self._share)

    def wake(self) -> None:
        """There may be something to collect. Never blocks."""
        self._wake.set()

    def ask_for_scan(self) -> None:
        """The index has lost something. Never blocks."""
        self._scanned.clear()
        self._scan_asked = True
        self._wake.set()

    def look_again(self) -> None:
        """Something went that the index has not been told of. Never blocks."""
        self._scan_asked = True
        self._wake.set()

    def wait_for_scan(self, timeout: float = 20.0) -> bool:
        """Waits until the store was looked through; False if that takes too long."""
        return self._scanned.wait(timeout)

    def scan(self) -> None:
        """Looks through the store. Raises StoreError, and StoppedError."""
        begun = time.monotonic()
        self._scan_asked = False
        entries = self._scanner.run()
        self._scanned.set()
        log.info("the store has %d entries; looked through in %.1f s", entries, time.monotonic() - begun)

    def round(self, *, dry_run: bool = False, scan: bool = True) -> dict[str, Any]:
        """One collection; the JSON of `POST /v1/gc`. Raises StoreError, and StoppedError."""
        with self._one:
            if not dry_run:
                self._share()
                self._index.learn(merge_batches(self._backend, keep=self._is_known))
            if scan or not self._index.complete:
                self.scan()
            self._index.flush()
            freed = self._plan() if dry_run else self._collect()
        if freed.entries or freed.blobs:
            log.info(
                "%s %d entries and %d blobs: %d bytes",
                "would remove" if dry_run else "removed",
                freed.entries,
                freed.blobs,
                freed.bytes,
            )
        return {
            "dry_run": dry_run,
            "entries": freed.entries,
            "blobs": freed.blobs,
            "freed_bytes": freed.bytes,
            "namespaces": freed.by_namespace,
        }

    def _collect(self) -> Freed:
        freed, now = Freed(), time.time()
        by_reason: dict[str, list[Candidate]] = {}
        for candidate, reason in self._overdue(now):
            by_reason.setdefault(reason, []).append(candidate)
        for reason, candidates in by_reason.items():
            for start in range(0, len(candidates), _PAGE):
                self._evictor.remove(candidates[start : start + _PAGE], reason, into=freed)
        for namespace in self._index.stock.namespaces:
            made = self._evictor.make_room(
                lambda namespace=namespace: self._space.excess_of(namespace),  # type: ignore[misc]
                "the namespace's quota",
                namespace=namespace,
            )
            freed.merge(made)
        freed.merge(self._evictor.make_room(self._space.excess, "the store is nearly full"))
        self._evictor.remove_orphans(before=now - self._pace.grace, into=freed)
        self._tidy(now, freed)
        return freed

    def _plan(self) -> Freed:
        """What a collection would remove, as far as the index tells."""
        freed, chosen = Freed(), {}
        for candidate, _ in self._overdue(time.time()):
            chosen[candidate.namespace, candidate.key] = candidate
        for namespace in [*self._index.stock.namespaces, None]:
            need = self._space.excess() if namespace is None else self._space.excess_of(namespace)
            for candidate in self._evictor.choose(need, namespace=namespace):
                chosen[candidate.namespace, candidate.key] = candidate
        left: dict[str, int] = {}
        for candidate in chosen.values():
            freed.add_entry(candidate.namespace, candidate.own_bytes)
            for blob in candidate.blobs:
                left[blob.sha256] = left.get(blob.sha256, self._index.users(blob.sha256)) - 1
                if left[blob.sha256] == 0:
                    freed.add_blob(blob.size, candidate.namespace)
        for orphan in self._index.orphans(before=time.time() - self._pace.grace, limit=1 << 30):
            freed.add_blob(orphan.found.size)
        return freed

    def _overdue(self, now: float) -> list[tuple[Candidate, str]]:
        limits = self._space.limits
        age = limits.shortest_age
        found = []
        for candidate in self._index.overdue(now=now, unused_since=None if age is None else now - age, limit=1 << 30):
            reason = overdue(candidate, now=now, unused_for=limits.max_age_of(candidate.namespace))
            if reason is not None:
                found.append((candidate, reason))
        return found

    def _tidy(self, now: float, freed: Freed) -> None:
        for step in plan_leftovers(self._backend, Policy(), now=now):
            if isinstance(step.target, Found) and self._backend.remove(step.target):
                freed.bytes += step.size
        for seen in self._scanner.idle_records:
            if seen.record is not None and seen.record.acquired_at < now - WEEK:
                try:
                    self._storage.records.delete_if(seen.name, seen.version)
                except ConflictError:
                    continue

    def _is_known(self, namespace: str, name: str) -> bool:
        return not self._index.complete or self._index.entry(namespace, name) is not None

    def _share(self) -> None:
        uses = self._index.take_unshared_uses()
        try:
            put_batch(self._backend, self._replica, uses)
        except StoreError:
            self._index.give_back_uses(uses)
            raise

    def _run(self) -> None:
        shared = collected = time.monotonic()
        scanned = float("-inf")
        pause = min(self._pace.share, self._pace.collect, self._pace.scan, 30.0)
        while not self._stopped.is_set():
            now = time.monotonic()
            if self._scan_asked or now - scanned >= self._pace.scan:
                if self._guarded(self.scan):
                    scanned = time.monotonic()
                else:
                    self._scan_asked = True
                    self._stopped.wait(min(5.0, self._pace.scan))
            if now - shared >= self._pace.share:
                self._guarded(self._share)
                shared = now
            if self._election.elected and (self._is_full() or now - collected >= self._pace.collect):
                self._guarded(lambda: self.round(scan=False))
                collected = time.monotonic()
                # If it is full still, then of what may not be removed.
                self._idle_until = collected + (pause if self._is_full() else 0.0)
            self._wake.wait(pause)
            self._wake.clear()

    def _is_full(self) -> bool:
        if time.monotonic() < self._idle_until:
            return False
        found: list[int] = []
        return self._guarded(lambda: found.append(self._space.excess())) and found[0] > 0

    def _guarded(self, act: Callable[[], object]) -> bool:
        """Does `act`; what goes wrong becomes a line in the log."""
        try:
            act()
        except StoppedError:
            return False
        except StoreError as error:
            log.warning("collecting: %s", error)
            return False
        except Exception:
            log.exception("collecting failed")
            return False
        return True
