"""One request for a key that the local tier does not have: this host first, then the fleet, then the compiler."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from cache_server.errors import (
    BreakerOpenError,
    CacheError,
    ConflictError,
    NotExclusiveError,
    StoreError,
    UnavailableError,
)
from cache_server.failures import retell
from cache_server.hostlock import HostLock
from cache_server.jitter import jitter
from cache_server.keys import KeyParts
from cache_server.leases import Held, HeldLease, Settled, Vacant, Verdict, Watch
from cache_server.manifest import Manifest
from cache_server.outputs import Built
from cache_server.patience import Holder, Patience
from cache_server.production import Production
from cache_server.resilience.effort import effort_of
from cache_server.result import CacheResult

if TYPE_CHECKING:
    from cache_server.cache import NeffCache
    from cache_server.tier import SharedStore, SharedTier

log = logging.getLogger("neuron_env.cache")

_SHORTEST_POLL = 0.01
_LONGEST_HOST_POLL = 0.02
_LOOK_SECONDS = 1.0  # how long a look may wait for news, so that progress is told once a second
_HOLDER_SECONDS = 10.0  # how often a host's waiters ask the fleet who the owner is: there may be many of them


class Flight:
    """Brings one key in. Made by `NeffCache.get_or_compile`; `run` is called once."""

    def __init__(self, cache: NeffCache, parts: KeyParts, compile_: Callable[[], bytes | Built], label: str) -> None:
        self._cache = cache
        self._settings = cache.settings
        self._parts = parts
        self._label = label
        self._production = Production(cache, parts, compile_, label)
        self._patience = Patience(cache.settings.wait_seconds, key=parts.key, label=label, progress=cache.progress)
        self._took_over = False
        self._holder: Holder | None = None
        self._next_look = 0.0
        self._distrusted_epoch = -1  # failures remembered up to here are what the caller wants tried again

    def run(self) -> CacheResult:
        """Raises what the compile raises, and CompileFailure for a remembered failure."""
        lock = self._cache.local.lock(self._parts)
        try:
            # After the wait as well as without one: somebody may have kept it since the caller looked.
            with effort_of(self._settings.budget_seconds):
                result = (
                    self._wait_for_host(lock)
                    or self._cache.from_local(self._parts)
                    or self._cache.from_base(self._parts)
                    or self._through_fleet()
                )
        finally:
            lock.release()
        return replace(
            result,
            waited_seconds=self._patience.waited,
            waited_for=self._patience.waited_for,
            took_over=self._took_over,
        )

    def _wait_for_host(self, lock: HostLock) -> CacheResult | None:
        """What the lock's holder left in the local tier; None with the lock held, or when the time is over."""
        poll = _SHORTEST_POLL
        while not lock.try_acquire() and not self._patience.over:
            self._pause(poll, self._look_at_holder)
            poll = min(poll * 1.5, _LONGEST_HOST_POLL)
            # The holder keeps the NEFF before it lets go of the lock, so this is seen first.
            if (hit := self._cache.from_local(self._parts)) is not None:
                return hit
        return None

    def _look_at_holder(self) -> Holder:
        """The fleet's owner of the key, which the process that has this host's lock is, or waits for."""
        now = time.monotonic()
        if self._cache.storage is not None and now >= self._next_look:
            self._next_look = now + _HOLDER_SECONDS
            self._holder = self._find_holder(self._cache.storage)
        if self._holder is None:
            return Holder(f"another process on {self._cache.owner.host}", "working", self._patience.waited)
        return self._holder

    def _find_holder(self, tier: SharedTier) -> Holder | None:
        watch = tier.coordinator(self._settings.lease_seconds).watch(self._parts.key)
        try:
            verdict = watch.look()
        except StoreError:
            return None
        finally:
            watch.close()
        return Holder.of(verdict.record) if isinstance(verdict, Held) else None

    def _through_fleet(self) -> CacheResult:
        tier = self._cache.storage
        if tier is None:
            return self._alone(asked=True)
        try:
            known = tier.store.read_manifest(self._parts.key)
            if known is not None:
                if self._settings.retry_failures:
                    self._distrusted_epoch = known.epoch
                if (hit := self._use(tier.store, known)) is not None:
                    return hit
            if self._settings.read_only or self._settings.require_hit:
                return self._alone("the shared cache is only read here", asked=True)
            if known is not None and known.failure is None:
                self._tidy(tier.store.drop_manifest, known)
            floor = 1 if known is None else known.epoch + 1
            leases = self._cache.leases_work()
            try:
                found = self._settle(tier, floor) if leases else None
            except NotExclusiveError as error:
                leases, found = self._cache.give_up_leases(error), None
        except StoreError as error:
            self._cache.complain(error)
            return self._alone(error.message)
        if isinstance(found, CacheResult):
            return found
        if found is not None:
            return self._production.as_owner(tier.store, found)
        if not leases:
            return self._production.without_lease(tier.store, floor)
        return self._alone(
            f"{self._patience.waited_for} is still at work after {self._settings.wait_seconds:.0f} s of waiting",
            asked=True,
        )

    def _alone(self, reason: str = "", *, asked: bool = False) -> CacheResult:
        """Compiles for this host. `asked`: there is no NEFF, as opposed to nobody who could tell."""
        if asked:
            self._cache.stats.add(misses=1)
        if self._settings.require_hit:
            what = f"{self._label} ({self._parts.key})" if self._label else self._parts.key
            why = "is not in the cache" if asked else f"cannot be had from the cache: {reason}"
            raise CacheError(
                f"{what} {why}, and this job must not compile",
                hint="compile it beforehand, or unset `NEURON_ENV_CACHE_REQUIRE_HIT`",
            )
        return self._production.for_this_host(reason)

    def _settle(self, tier: SharedTier, floor: int) -> CacheResult | HeldLease | None:
        """A result somebody published, or the lease to make one; None when the time to wait is over."""
        watch = tier.coordinator(self._settings.lease_seconds).watch(self._parts.key)
        try:
            return self._watch(tier.store, watch, floor)
        finally:
            watch.close()

    def _watch(self, store: SharedStore, watch: Watch, floor: int) -> CacheResult | HeldLease | None:
        outage = _Outage(self._settings.lease_seconds)
        verdict: Verdict | None = watch.look()
        holder = Holder("another process", "acquired", 0.0)
        first = True
        while True:
            if isinstance(verdict, Settled):
                # What is published under the eyes of a waiter, its owner lists. What was so before and is not listed
                # has an owner that died in between.
                hit = self._use(store, verdict.manifest, list_it=first)
                if hit is not None:
                    return hit
            if isinstance(verdict, Held):
                holder = Holder.of(verdict.record)
                outage.is_worked_on()
            elif verdict is not None:
                try:
                    return self._claim(watch, verdict, floor)
                except ConflictError:
                    # Somebody was faster. On a mount that caches names it takes a moment until that can be seen.
                    holder = Holder("another process", "acquired", 0.0)
            if self._patience.over:
                self._patience.waited_for = holder.owner
                return None
            first = False
            verdict = self._look_again(watch, holder, outage)

    def _look_again(self, watch: Watch, holder: Holder, outage: _Outage) -> Verdict | None:
        """The state of the key after a moment; None where a passing outage hides it."""
        try:
            with self._waiting(holder):
                seen = watch.look(min(_LOOK_SECONDS, self._patience.left))
        except UnavailableError as error:
            if not outage.may_pass():
                raise
            if outage.begins and not isinstance(error, BreakerOpenError):
                self._cache.complain(error)
            outage.begins = False
            self._pause(jitter(0.2, 0.6), lambda: holder)
            return None
        outage.begins = True
        return seen

    def _claim(self, watch: Watch, over: Vacant | Settled, floor: int) -> HeldLease:
        lease = watch.claim(
            over,
            owner=self._cache.owner,
            lease_seconds=self._settings.lease_seconds,
            at_least_epoch=floor,
            label=self._label,
        )
        if isinstance(over, Vacant) and over.expired is not None:
            self._took_over = True
            self._cache.stats.add(takeovers=1)
            what = self._label or self._parts.key[:12]
            log.warning("took over %s from %s, which gave no sign of life", what, over.expired)
        return lease

    def _use(self, store: SharedStore, manifest: Manifest, *, list_it: bool = False) -> CacheResult | None:
        """The NEFF that a manifest names; None if it is gone, damaged, or a failure to be tried again.

        `list_it` puts a usable manifest where readers look first. Raises CompileFailure for a failure that still holds.
        """
        if not store.accepts(manifest):
            return None
        now = time.time()
        result = None
        if manifest.failure is None:
            result = self._cache.fetch(store, manifest)
            if result is None:
                return None
        elif manifest.epoch <= self._distrusted_epoch or manifest.failure.expires_at <= now:
            return None
        if list_it:
            self._tidy(store.list_again, manifest)
        if result is None:
            self._cache.stats.add(failure_hits=1)
            raise retell(manifest, now=now)
        return result

    def _tidy(self, act: Callable[[Manifest], object], manifest: Manifest) -> None:
        """Does for the store what this request could do without."""
        try:
            act(manifest)
        except StoreError as error:
            self._cache.complain(error)

    def _pause(self, seconds: float, who: Callable[[], Holder]) -> None:
        with self._patience.waiting(who) as time_left, self._counted():
            time.sleep(max(0.0, min(seconds, time_left)))

    @contextlib.contextmanager
    def _waiting(self, holder: Holder) -> Iterator[None]:
        with self._patience.waiting(lambda: holder), self._counted():
            yield

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        first, begun = not self._patience.waited, time.monotonic()
        try:
            yield
        finally:
            self._cache.stats.add(waits=int(first), seconds_waiting=time.monotonic() - begun)


class _Outage:
    """Whether somebody who waits for another one's compile should wait for the store to return.

    The owner's lease outlives a short outage, and compiling all over costs more than a lease's length. So it is
    worth holding out for that long after the owner was last seen at work.
    """

    def __init__(self, seconds: float) -> None:
        self.begins = True
        self._seconds = seconds
        self._until = 0.0

    def is_worked_on(self) -> None:
        self._until = time.monotonic() + self._seconds

    def may_pass(self) -> bool:
        return time.monotonic() < self._until
