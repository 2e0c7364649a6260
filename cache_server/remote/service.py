"""One cache service as this process sees it: its address, its breaker, and questions that are asked until answered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

from cache_server.errors import UnavailableError
from cache_server.fields import encode_object
from cache_server.remote.connection import Connection
from cache_server.remote.options import RemoteOptions
from cache_server.remote.problems import Answer
from cache_server.resilience.breaker import Breaker
from cache_server.resilience.effort import effort_of
from cache_server.resilience.retries import Persistence

T = TypeVar("T")

_JSON = {"Content-Type": "application/json"}


class Service:
    """What all caches of this process that use one service share: connections, retry budget, circuit breaker.

    Methods raise StoreError and its kinds. An answer that is a refusal is returned, for the caller to understand.
    """

    _services: ClassVar[dict[RemoteOptions, Service]] = {}
    _services_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, options: RemoteOptions) -> None:
        self.url = options.url
        self.connection = Connection(options)
        self.breaker = Breaker(options.url, self._probe)
        self.persistence = Persistence(self.breaker, timeout=options.timeout_seconds)
        self._timeout = options.timeout_seconds

    @classmethod
    def at(cls, options: RemoteOptions) -> Service:
        """The service that everybody with these options in this process shares."""
        with cls._services_lock:
            if options not in cls._services:
                cls._services[options] = cls(options)
            return cls._services[options]

    def ask(
        self,
        method: str,
        path: str,
        value: Mapping[str, Any] | bytes | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        wait: float = 0.0,
        check: Callable[[Answer], T],
    ) -> T:
        """What `check` makes of the answer. It may raise UnavailableError for one that was garbled on the way.

        `value` is a JSON object, or the bytes of one. `wait`: seconds that the service may take on purpose.
        """
        body = value if value is None or isinstance(value, bytes) else encode_object(value)
        sent = {**(_JSON if body is not None else {}), **(headers or {})}

        def attempt(timeout: float) -> T:
            return check(self.connection.ask(method, f"/v1{path}", body=body, headers=sent, timeout=timeout, wait=wait))

        return self.persistence.run(attempt, free=wait > 0)

    def _probe(self) -> None:
        with effort_of(self._timeout, insist=True):
            answer = self.connection.ask("GET", "/readyz", timeout=self._timeout)
        if answer.status >= 500:  # pragma: no cover  temporary ones have been raised
            raise UnavailableError(f"the cache at {self.url} is not ready")
