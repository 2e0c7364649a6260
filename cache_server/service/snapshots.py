"""The statistics for many who look at them all day: made once for all of them, and sent only when they changed."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from typing import Any

from cache_server.fields import encode_object
from cache_server.service.gate import Principal

_VIEWS = 256  # sets of namespaces whose last snapshot is kept
_BODIES = 16  # documents of different lengths that are kept of a snapshot
# What changes all the time says nothing new: whoever has an older answer can tell by its own clock.
_CLOCKS = frozenset({"uptime_seconds"})
_FLIGHT_CLOCKS = frozenset({"age_seconds", "silent_seconds"})


class Snapshot:
    """The statistics as one principal sees them at one moment."""

    def __init__(self, value: dict[str, Any]) -> None:
        self.made_at = time.monotonic()
        self._value = value
        self._bodies: dict[tuple[float, int | None], bytes] = {}
        self.etag = f'W/"{hashlib.blake2b(encode_object(_lasting(value)), digest_size=16).hexdigest()}"'

    def body(self, since: float, flights: int | None = None) -> bytes:
        """The document, with the history from `since` on (seconds since 1970) and the oldest `flights` in flight."""
        body = self._bodies.get((since, flights))
        if body is None:
            history = [line for line in self._value["history"] if line["at"] >= since]
            oldest = self._value["in_flight"][:flights]
            body = encode_object({**self._value, "history": history, "in_flight": oldest})
            if len(self._bodies) < _BODIES:
                self._bodies[since, flights] = body
        return body


class Snapshots:
    """The last snapshots. Belongs to one event loop."""

    def __init__(self) -> None:
        self._last: dict[frozenset[str] | None, Snapshot] = {}
        self._made: dict[frozenset[str] | None, asyncio.Task[Snapshot]] = {}

    async def of(
        self, principal: Principal, make: Callable[[Principal], Awaitable[dict[str, Any]]], *, max_age: float
    ) -> Snapshot:
        """What `make` says for those who see what `principal` sees; at most `max_age` seconds old."""
        view = principal.namespaces
        last = self._last.get(view)
        if last is not None and time.monotonic() - last.made_at <= max_age:
            return last
        if max_age <= 0:
            return Snapshot(await make(principal))
        making = self._made.get(view)
        if making is None:
            making = asyncio.get_running_loop().create_task(self._make(principal, make))
            self._made[view] = making
        return await asyncio.shield(making)

    async def _make(self, principal: Principal, make: Callable[[Principal], Awaitable[dict[str, Any]]]) -> Snapshot:
        view = principal.namespaces
        try:
            snapshot = Snapshot(await make(principal))
        finally:
            del self._made[view]
        if view not in self._last and len(self._last) >= _VIEWS:
            self._last.clear()
        self._last[view] = snapshot
        return snapshot


def _lasting(value: dict[str, Any]) -> dict[str, Any]:
    """What of the statistics does not change by itself."""
    requests = {name: count for name, count in value["requests"].items() if name != "answered"}
    flights = [_lasting_flight(flight) for flight in value["in_flight"]]
    lasting = {name: it for name, it in value.items() if name not in _CLOCKS}
    return {**lasting, "requests": requests, "in_flight": flights}


def _lasting_flight(flight: dict[str, Any]) -> dict[str, Any]:
    lasting = {name: it for name, it in flight.items() if name not in _FLIGHT_CLOCKS}
    # An owner that beats is no news; one that stays silent is, second by second.
    silent, lease = flight["silent_seconds"], flight["lease_seconds"]
    return {**lasting, "silent": int(silent) if lease and silent > lease / 2 else 0}
