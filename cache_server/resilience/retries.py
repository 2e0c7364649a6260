"""Asking again: with full jitter, within an effort, and never so often that retries become the load."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from cache_server.errors import CacheError, PacedError, TimedOutError, UnavailableError
from cache_server.jitter import jitter
from cache_server.resilience.breaker import Breaker
from cache_server.resilience.effort import Effort, current_effort

T = TypeVar("T")

_ATTEMPTS = 3
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 1.0
_SMALLEST_EFFORT = 0.01  # seconds with which no request can succeed


class RetryBudget:
    """At most a tenth of a store's requests, beyond a first few, may be repetitions.

    Otherwise a store in trouble gets three times its load from those who want to help themselves.
    """

    def __init__(self, tokens: float = 10.0, per_success: float = 0.1) -> None:
        self.spent = 0
        self._most = self._tokens = tokens
        self._per_success = per_success
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Whether one more retry may be made."""
        with self._lock:
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True

    def earn(self) -> None:
        with self._lock:
            self._tokens = min(self._most, self._tokens + self._per_success)

    def count(self) -> None:
        with self._lock:
            self.spent += 1


class Persistence:
    """Runs attempts against one store until one succeeds or going on makes no sense.

    `timeout` is how long a store may be silent, in seconds.
    """

    def __init__(self, breaker: Breaker, *, timeout: float, attempts: int = _ATTEMPTS) -> None:
        self.breaker = breaker
        self.budget = RetryBudget()
        self._timeout = timeout
        self._attempts = attempts

    def run(
        self,
        attempt: Callable[[float], T],
        *,
        progress: Callable[[], int] | None = None,
        free: bool = False,
    ) -> T:
        """What `attempt` returns; it is given the seconds of silence it may bear, and raises UnavailableError.

        `progress` grows with what attempts got done: one that moved something is no failed one. `free`: what a
        successful attempt takes is not charged. Raises the last attempt's error, or BreakerOpenError.
        """
        effort = current_effort()
        if not effort.insist:
            self.breaker.check()
        failures = 0
        while True:
            if effort.left < _SMALLEST_EFFORT:
                raise TimedOutError("the time that a job may lose to its shared cache is used up")
            allowed = min(self._timeout, effort.left)
            begun, before = time.monotonic(), progress() if progress else 0
            try:
                result = attempt(allowed)
            except PacedError as error:
                # It tells when to come back, so this is neither a failure nor a load that retries would make worse.
                effort.charge(time.monotonic() - begun)
                wait = (error.retry_after or 0.0) + self._jitter(1)
                if wait >= effort.left:
                    self.breaker.failed()
                    raise
                effort.pause(wait)
                self.budget.count()
            except UnavailableError as error:
                took = time.monotonic() - begun
                if progress and progress() > before:
                    failures, took = 0, min(took, self._timeout)
                else:
                    failures += 1
                    # A store that was given a fraction of its time only is not to blame.
                    if not isinstance(error, TimedOutError) or allowed >= self._timeout / 2:
                        self.breaker.failed()
                effort.charge(took)
                pause = self._pause(failures, error, effort)
                if pause is None:
                    raise
                effort.pause(pause)
                self.budget.count()
            except CacheError:
                # An answer, though not a welcome one: the store is there.
                self.breaker.succeeded()
                effort.charge(time.monotonic() - begun)
                raise
            else:
                self.breaker.succeeded()
                self.budget.earn()
                if not free:
                    effort.charge(time.monotonic() - begun)
                return result

    def _pause(self, failures: int, error: UnavailableError, effort: Effort) -> float | None:
        """Seconds until the next attempt; None if there is none."""
        if not effort.insist and (failures >= self._attempts or self.breaker.is_open or not self.budget.take()):
            return None
        pause = self._jitter(failures)
        if error.retry_after is not None:
            pause += error.retry_after
        return pause if pause < effort.left else None

    def _jitter(self, failures: int) -> float:
        ceiling = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(max(failures - 1, 0), 10))
        return jitter(0, ceiling)
