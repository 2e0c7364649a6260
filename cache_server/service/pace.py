"""How much one principal may ask of this replica: requests a second, and bodies on their way at once."""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client import Counter as Metric

from cache_server.service.errors import ProblemError
from cache_server.trust.principal import Principal

_REMEMBERED = 10_000  # principals; who has not asked for longest is forgotten first
_BURST_SECONDS = 2.0  # of requests that may come at once: a job asks in bursts, and then compiles


class Bucket:
    """Tokens that fill up at `rate` a second, up to `burst`. Pure: the clock is handed in."""

    __slots__ = ("_at", "_burst", "_rate", "_tokens")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at = now

    def take(self, now: float) -> float:
        """Takes a token: 0. Or takes none, and tells in how many seconds there will be one."""
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        if self._tokens >= 1.0:
            self._tokens -= 1.0
            return 0.0
        return (1.0 - self._tokens) / self._rate


class Pace:
    """Limits by principal; whoever shows no credentials is known by address. Belongs to the event loop.

    `rate` is in requests a second, `uploads` in bodies at once; None for no limit.
    """

    def __init__(
        self,
        rate: float | None,
        uploads: int | None,
        registry: CollectorRegistry,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate = rate
        self._most_uploads = uploads
        self._clock = clock
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()
        self._uploads: Counter[str] = Counter()
        refused = Metric(
            "neuron_env_cache_rate_limited", "Requests refused for being too many", ["limit"], registry=registry
        )
        self._too_fast, self._too_many = refused.labels("requests"), refused.labels("uploads")

    def allows(self, principal: Principal, peer: str) -> bool:
        """Counts one request; False, and counts none, if it is one too many for now."""
        return self._rate is None or self._bucket(principal, peer).take(self._clock()) == 0.0

    def admit(self, principal: Principal, peer: str) -> None:
        """Counts one request. Raises ProblemError (429, with Retry-After) if it is one too many for now."""
        if self._rate is None:
            return
        wait = self._bucket(principal, peer).take(self._clock())
        if wait > 0.0:
            self._too_fast.inc()
            raise _busy(
                f"{principal.name} asks more than {self._rate:g} times a second of this replica", math.ceil(wait)
            )

    @contextlib.contextmanager
    def uploading(self, principal: Principal, peer: str) -> Iterator[None]:
        """While a body is on its way. Raises ProblemError (429, with Retry-After) at entry if it is one too many."""
        if self._most_uploads is None:
            yield
            return
        name = _name(principal, peer)
        if self._uploads[name] >= self._most_uploads:
            self._too_many.inc()
            raise _busy(f"{principal.name} sends {self._most_uploads} blobs to this replica already", 1)
        self._uploads[name] += 1
        try:
            yield
        finally:
            self._uploads[name] -= 1
            if not self._uploads[name]:
                del self._uploads[name]

    def _bucket(self, principal: Principal, peer: str) -> Bucket:
        assert self._rate is not None
        name = _name(principal, peer)
        bucket = self._buckets.get(name)
        if bucket is None:
            burst = max(1.0, self._rate * _BURST_SECONDS)
            bucket = self._buckets[name] = Bucket(self._rate, burst, self._clock())
            if len(self._buckets) > _REMEMBERED:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(name)
        return bucket


def _name(principal: Principal, peer: str) -> str:
    return f"{principal.name} at {peer}" if principal.name == "anonymous" else principal.name


def _busy(detail: str, seconds: int) -> ProblemError:
    return ProblemError(
        "busy",
        detail,
        hint="ask less often, or raise `NEURON_ENV_SERVER_RATE_LIMIT` or `NEURON_ENV_SERVER_UPLOAD_LIMIT`",
        headers={"Retry-After": str(max(1, seconds))},
    )
