"""What is counted in memory until the next tick, so that a hit costs no transaction."""

from __future__ import annotations

import sqlite3
import threading
import time

from cache_server.administration.usage import Use, Uses

_DAY_MINUTES = 24 * 60
_USED = "UPDATE entries SET used = max(used, ?), uses = uses + ? WHERE namespace = ? AND key = ?"
_COUNTED = "INSERT INTO counters VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = value + excluded.value"
_MINUTE = "INSERT INTO minutes VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = value + excluded.value"


class Tally:
    """Last uses, counters by namespace, and the same counters by the minute. Safe from every thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uses: Uses = {}
        self._unshared: Uses = {}  # not yet told to other replicas
        self._counted: dict[tuple[str, str], float] = {}
        self._minutes: dict[tuple[int, str], float] = {}

    def use(self, namespace: str, name: str, use: Use) -> None:
        place = (namespace, name)
        with self._lock:
            for uses in (self._uses, self._unshared):
                known = uses.get(place)
                uses[place] = use if known is None else known + use

    def learn(self, uses: Uses) -> None:
        """Takes over what other replicas told."""
        with self._lock:
            for place, use in uses.items():
                known = self._uses.get(place)
                self._uses[place] = use if known is None else known + use

    def count(self, namespace: str, amounts: dict[str, float]) -> None:
        minute = int(time.time() // 60)
        with self._lock:
            for name, amount in amounts.items():
                place = (namespace, name)
                self._counted[place] = self._counted.get(place, 0.0) + amount
                self._minutes[minute, name] = self._minutes.get((minute, name), 0.0) + amount

    def take_unshared(self) -> Uses:
        """What other replicas have not been told, which from now on is the caller's to tell."""
        with self._lock:
            uses, self._unshared = self._unshared, {}
            return uses

    def give_back(self, uses: Uses) -> None:
        """The caller could not tell them."""
        with self._lock:
            for place, use in uses.items():
                known = self._unshared.get(place)
                self._unshared[place] = use if known is None else known + use

    def drain(self) -> Drained | None:
        """The change that writes what was counted since the last call; None if nothing was."""
        with self._lock:
            drained = Drained(self._uses, self._counted, self._minutes)
            if not (drained.uses or drained.counted):
                return None
            self._uses, self._counted, self._minutes = {}, {}, {}
            return drained


class Drained:
    """A change of the index."""

    def __init__(
        self, uses: Uses, counted: dict[tuple[str, str], float], minutes: dict[tuple[int, str], float]
    ) -> None:
        self.uses, self.counted, self.minutes = uses, counted, minutes

    def __call__(self, connection: sqlite3.Connection) -> None:
        connection.executemany(_USED, [(use.at, use.count, *place) for place, use in self.uses.items()])
        connection.executemany(_COUNTED, [(*place, value) for place, value in self.counted.items()])
        connection.executemany(_MINUTE, [(*place, value) for place, value in self.minutes.items()])
        if self.minutes:
            oldest = min(minute for minute, _ in self.minutes) - _DAY_MINUTES
            connection.execute("DELETE FROM minutes WHERE minute < ?", (oldest,))
