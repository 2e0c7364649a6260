"""What has been promised, and whether there is room for more. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_EVICT_BEYOND = 0.95  # of the capacity: from here on the collector evicts
_EVICT_TO = 0.90


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes and seconds; None is no limit. The maps are by namespace and win over what holds for all.

    capacity: what the store may hold
    quota, quotas: what one namespace may hold
    max_age, max_ages: how long an entry may stay unused
    keep_free: what stays free on the store's disk; None: a fiftieth of it, 1 GiB at most
    """

    capacity: int | None = None
    quota: int | None = None
    quotas: Mapping[str, int] = field(default_factory=dict)
    max_age: float | None = None
    max_ages: Mapping[str, float] = field(default_factory=dict)
    keep_free: int | None = None

    def quota_of(self, namespace: str) -> int | None:
        return self.quotas.get(namespace, self.quota)

    def max_age_of(self, namespace: str) -> float | None:
        return self.max_ages.get(namespace, self.max_age)

    @property
    def shortest_age(self) -> float | None:
        """No entry younger than this is too old anywhere."""
        ages = [*self.max_ages.values(), *([self.max_age] if self.max_age is not None else [])]
        return min(ages, default=None)

    def excess(self, stored: int) -> int:
        """What the collector has to free where `stored` bytes are in the store: nothing until it is nearly full."""
        if self.capacity is None or stored <= self.capacity * _EVICT_BEYOND:
            return 0
        return stored - int(self.capacity * _EVICT_TO)


@dataclass(frozen=True, slots=True)
class Shortage:
    """Bytes that are lacking: of the whole store, of the namespace's quota, of the disk."""

    store: int = 0
    quota: int = 0
    disk: int = 0

    def __bool__(self) -> bool:
        return max(self.store, self.quota, self.disk) > 0


class Ledger:
    """Promises by namespace, held against limits. Not safe from several threads: its owner has the lock."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._promised: dict[str, int] = {}

    @property
    def promised(self) -> int:
        """Bytes promised to all."""
        return sum(self._promised.values())

    def promised_to(self, namespace: str) -> int:
        return self._promised.get(namespace, 0)

    def promise(self, namespace: str, size: int) -> None:
        self._promised[namespace] = self.promised_to(namespace) + size

    def settle(self, namespace: str, size: int) -> None:
        """Ends a promise: its bytes are stored and counted as such, or will not come."""
        left = self.promised_to(namespace) - size
        if left > 0:
            self._promised[namespace] = left
        else:
            self._promised.pop(namespace, None)

    def shortage(
        self, namespace: str, size: int, *, stored: int, stored_by: int, disk_free: int | None = None
    ) -> Shortage:
        """What lacks for `size` bytes more. `stored` is in the store, `stored_by` of this namespace.

        `disk_free` is what may still be written to the disk, for promises that have not been written yet too.
        """
        limits, quota = self.limits, self.limits.quota_of(namespace)
        return Shortage(
            0 if limits.capacity is None else max(0, stored + self.promised + size - limits.capacity),
            0 if quota is None else max(0, stored_by + self.promised_to(namespace) + size - quota),
            0 if disk_free is None else max(0, size - disk_free),
        )

    def hopeless(self, namespace: str, size: int) -> tuple[str, int] | None:
        """The limit, in words and bytes, that `size` exceeds whatever is evicted; None if there is none."""
        quota = self.limits.quota_of(namespace)
        if quota is not None and size > quota:
            return "quota", quota
        if self.limits.capacity is not None and size > self.limits.capacity:
            return "capacity", self.limits.capacity
        return None
