"""Leases that somebody waits for: one look at a time a key, however many wait."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from cache_server.errors import StoreError
from cache_server.fields import encode_object
from cache_server.leases.observer import Held, Observer, Settled, Vacant, Verdict
from cache_server.leases.record import LeaseRecord, decode_record
from cache_server.leases.records import RecordStore, Versioned

log = logging.getLogger("neuron_env.cache.server")

_UNREADABLE_LEASE = 15.0  # seconds; what a record that does not tell is given to change
_REMEMBERED = 20_000  # keys whose observations are kept while nobody waits
_POLLS_AT_ONCE = 8
_POLL_SHARE = 0.1  # of the time that looking may take: a slow store is asked less often


@dataclass(frozen=True)
class Sight:
    """What a look at a lease record showed; `record` is None where there is none, or none that can be read."""

    seen: Versioned | None
    record: LeaseRecord | None
    verdict: Verdict

    @property
    def version(self) -> str | None:
        return None if self.seen is None else self.seen.version

    @property
    def news(self) -> tuple[object, ...]:
        """What waiters wait for a change of. A renewal alone is none."""
        record = self.record
        return (type(self.verdict), record and record.epoch, record and record.phase, self.seen is None)

    def document(self) -> dict[str, Any]:
        """The JSON of `GET …/leases/{key}`, without the token."""
        verdict = self.verdict
        state = "held" if isinstance(verdict, Held) else "settled" if isinstance(verdict, Settled) else "vacant"
        return {
            "version": self.version,
            "state": state,
            "expired": isinstance(verdict, Vacant) and self.seen is not None and self._was_held,
            "record": None if self.record is None else self.record.public(),
        }

    @functools.cached_property
    def encoded(self) -> bytes:
        """The document as bytes, made once for all who wait."""
        return encode_object(self.document())

    @property
    def _was_held(self) -> bool:
        return self.record is None or self.record.state == "held"


class Watch:
    """One key's lease, as this process has seen it over time. Belongs to the event loop."""

    def __init__(self, name: str, read: Callable[[], Awaitable[Versioned | None]]) -> None:
        self.name = name
        self.key = name.rpartition("/")[2]
        self._read = read
        self._observer = Observer(self.key, default_lease_seconds=_UNREADABLE_LEASE)
        self._sight: Sight | None = None
        self._as_of = float("-inf")  # monotonic time before which the sight was not yet true
        self._writes = 0
        self._reading: asyncio.Task[None] | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        self.poller: asyncio.Task[None] | None = None
        self.listed: str | None = None  # the version whose manifest is known to be listed, or is about to be

    @property
    def waiters(self) -> int:
        return len(self._waiters)

    @property
    def idle(self) -> bool:
        return not self._waiters and self._reading is None

    async def look(self) -> Sight:
        """The record as it is at some moment from now on. Raises StoreError. Looks at the same time are one."""
        since = time.monotonic()
        while self._sight is None or self._as_of < since:
            if self._reading is None:
                self._reading = asyncio.get_running_loop().create_task(self._look())
            await asyncio.shield(self._reading)
        return self._sight

    async def recent(self, seconds: float) -> Sight:
        """The record as it was at some moment within the last `seconds`. Raises StoreError."""
        if self._sight is not None and self._as_of >= time.monotonic() - seconds:
            return self._sight
        return await self.look()

    def learn(self, seen: Versioned | None) -> Sight:
        """Takes in what this process has just written itself, and wakes who waits for it."""
        self._writes += 1
        return self._take(seen, time.monotonic())

    async def wait(self, seconds: float, gone: asyncio.Future[None] | None = None) -> None:
        """Returns at the next news, when the time is over, or once `gone` is done."""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(seconds, _wake, woken)
        self._waiters.add(woken)
        if gone is not None:
            gone.add_done_callback(lambda _: _wake(woken))
        try:
            await woken
        finally:
            self._waiters.discard(woken)
            timer.cancel()

    def wake(self) -> None:
        for waiter in self._waiters:
            _wake(waiter)

    def now(self) -> Sight | None:
        """The last sight, judged by the present time: an owner that nobody has heard of for long may be gone."""
        sight = self._sight
        if sight is None:
            return None
        return Sight(sight.seen, sight.record, self._observer.judge(sight.seen, time.monotonic()))

    async def _look(self) -> None:
        begun, writes = time.monotonic(), self._writes
        try:
            seen = await self._read()
        finally:
            self._reading = None
        # What was read before a write of our own may be older than that write.
        if writes == self._writes:
            self._take(seen, begun)

    def _take(self, seen: Versioned | None, now: float) -> Sight:
        record = None
        if seen is not None:
            with contextlib.suppress(ValueError):
                record = decode_record(seen.data, key=self.key)
        before = self._sight
        self._sight = sight = Sight(seen, record, self._observer.judge(seen, now))
        self._as_of = now
        if before is None or before.news != sight.news:
            self.wake()
        return sight


class Watches:
    """The watches of one process."""

    def __init__(self, records: RecordStore, call: Callable[..., Awaitable[Any]], *, poll_seconds: float) -> None:
        self._records = records
        self._call = call
        self._poll_seconds = poll_seconds
        self._watches: OrderedDict[str, Watch] = OrderedDict()
        self._polls = asyncio.Semaphore(_POLLS_AT_ONCE)
        self._closing = False

    def of(self, name: str) -> Watch:
        """The watch of the record `name`."""
        watch = self._watches.get(name)
        if watch is None:
            watch = self._watches[name] = Watch(name, lambda: self._call(self._records.read, name))
            self._forget()
        self._watches.move_to_end(name)
        return watch

    async def wait(
        self, name: str, after: str | None, seconds: float, gone: asyncio.Future[None] | None = None
    ) -> Sight:
        """The record once it is not, or no longer, held at the version `after`; at the latest after `seconds`.

        Raises StoreError. `gone` is done when nobody wants the answer any more.
        """
        watch = self.of(name)
        sight = await watch.look()
        if seconds <= 0 or sight.version != after or not isinstance(sight.verdict, Held) or self._closing:
            return sight
        if watch.poller is None:
            watch.poller = asyncio.get_running_loop().create_task(self._poll(watch, sight.verdict))
        await watch.wait(seconds, gone)
        return await watch.recent(self._poll_seconds)

    def held(self) -> Iterator[tuple[Watch, Held]]:
        """The leases that are held, as far as this process has seen."""
        for watch in list(self._watches.values()):
            sight = watch.now()
            if sight is not None and isinstance(sight.verdict, Held):
                yield watch, sight.verdict

    @property
    def waiters(self) -> int:
        return sum(watch.waiters for watch in self._watches.values())

    def drain(self) -> None:
        """Answers everybody who waits, now and from now on."""
        self._closing = True
        for watch in self._watches.values():
            watch.wake()

    async def close(self) -> None:
        self.drain()
        pollers = [watch.poller for watch in self._watches.values() if watch.poller is not None]
        for poller in pollers:
            poller.cancel()
        await asyncio.gather(*pollers, return_exceptions=True)

    async def _poll(self, watch: Watch, verdict: Verdict) -> None:
        """Looks again and again for changes by others, as long as anybody waits."""
        took, complained = 0.0, False
        try:
            while True:
                pause = max(self._poll_seconds, took / _POLL_SHARE)
                if isinstance(verdict, Held):
                    pause = min(pause, verdict.expires_in + 0.001)
                await asyncio.sleep(max(pause, 0.01))
                if not watch.waiters:
                    return
                async with self._polls:
                    begun = time.monotonic()
                    try:
                        verdict = (await watch.look()).verdict
                    except StoreError as error:
                        if not complained:
                            log.warning("a lease that somebody waits for cannot be read: %s", error)
                        complained = True
                    took = time.monotonic() - begun
        finally:
            watch.poller = None

    def _forget(self) -> None:
        excess = len(self._watches) - _REMEMBERED
        if excess > 0:
            for name in [name for name, watch in self._watches.items() if watch.idle][:excess]:
                del self._watches[name]


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
