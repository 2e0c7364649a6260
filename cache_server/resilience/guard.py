"""A breaker around a client library that has retries and time-outs of its own."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from cache_server.errors import CacheError, TimedOutError, UnavailableError
from cache_server.resilience.breaker import Breaker
from cache_server.resilience.effort import current_effort


class Guard:
    """A context for each request. Raises BreakerOpenError before one that should not be made."""

    def __init__(self, breaker: Breaker) -> None:
        self.breaker = breaker

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        effort = current_effort()
        if not effort.insist:
            self.breaker.check()
        if effort.left <= 0:
            raise TimedOutError("the time that a job may lose to its shared cache is used up")
        begun = time.monotonic()
        try:
            yield
        except UnavailableError:
            self.breaker.failed()
            effort.charge(time.monotonic() - begun)
            raise
        except CacheError:
            self.breaker.succeeded()
            raise
        self.breaker.succeeded()
