"""What a cache did for this process."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass(slots=True)
class CacheStats:
    """Counters of one `NeffCache`; `add` is safe from every thread. Times are seconds.

    `misses` are keys that nobody had. A store that did not work is never counted as a miss: `errors` are refusals and
    broken answers, `timeouts` answers that did not come in time, `breaker_open` questions that were not asked because
    the store had failed before. `retries` are requests that were made again, `breaker_opened` the times that the
    store began to be left alone. `refused` are manifests whose signature would not do: what they name counts as
    missing.
    """

    local_hits: int = 0
    shared_hits: int = 0
    failure_hits: int = 0
    misses: int = 0
    compiles: int = 0
    waits: int = 0
    takeovers: int = 0
    fenced: int = 0
    quarantined: int = 0
    refused: int = 0
    nondeterministic: int = 0
    errors: int = 0
    timeouts: int = 0
    breaker_open: int = 0
    retries: int = 0
    breaker_opened: int = 0
    seconds_compiling: float = 0.0
    seconds_queued: float = 0.0  # for a compile slot of this host
    seconds_waiting: float = 0.0
    seconds_saved: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @property
    def hits(self) -> int:
        return self.local_hits + self.shared_hits

    def add(self, **amounts: float) -> None:
        """Adds to counters by name."""
        with self._lock:
            for name, amount in amounts.items():
                setattr(self, name, getattr(self, name) + amount)

    def to_json(self) -> dict[str, float]:
        """All counters, with `hits`, at one moment."""
        with self._lock:
            values = {name: getattr(self, name) for name in self.__slots__ if not name.startswith("_")}
        return {"hits": self.hits, **values}
