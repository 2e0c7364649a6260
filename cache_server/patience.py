"""How long a request has waited, for whom, and when that becomes too long."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cache_server.leases import LeaseRecord
from cache_server.result import Waiting

_PROGRESS_EVERY = 1.0


@dataclass(frozen=True, slots=True)
class Holder:
    """Whoever is waited for, as text for people. `age_seconds` is since it took the key."""

    owner: str
    phase: str
    age_seconds: float

    @classmethod
    def of(cls, record: LeaseRecord | None) -> Holder:
        if record is None:
            return cls("an owner whose record cannot be read", "unknown", 0.0)
        # For people: the owner's wall clock may be off, so this decides nothing.
        return cls(str(record.owner), record.phase, max(0.0, time.time() - record.acquired_at))


class Patience:
    """The waiting of one request: bounded, measured, and told to `progress` about once a second."""

    def __init__(self, seconds: float, *, key: str, label: str, progress: Callable[[Waiting], None] | None) -> None:
        self.waited = 0.0
        self.waited_for = ""
        self._key = key
        self._label = label
        self._progress = progress
        self._started = time.monotonic()
        self._deadline = self._started + seconds
        self._next_progress = self._started

    @property
    def over(self) -> bool:
        return time.monotonic() >= self._deadline

    @property
    def left(self) -> float:
        """Seconds until the deadline, 0 or more."""
        return max(0.0, self._deadline - time.monotonic())

    @contextlib.contextmanager
    def waiting(self, who: Callable[[], Holder]) -> Iterator[float]:
        """A context that waits, at most for the seconds it is given. `who` is asked when it is time to tell."""
        begun = time.monotonic()
        if begun >= self._next_progress:
            self._next_progress = begun + _PROGRESS_EVERY
            self._tell(who(), begun)
        try:
            yield self.left
        finally:
            self.waited += time.monotonic() - begun

    def _tell(self, holder: Holder, now: float) -> None:
        self.waited_for = holder.owner
        if self._progress is not None:
            self._progress(
                Waiting(
                    key=self._key,
                    label=self._label,
                    owner=holder.owner,
                    phase=holder.phase,
                    age_seconds=holder.age_seconds,
                    waited_seconds=now - self._started,
                    gives_up_in=self._deadline - now,
                )
            )
