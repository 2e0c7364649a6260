"""A circuit breaker: after a few failures in a row a store is left alone, until a probe in the background succeeds."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from cache_server.errors import BreakerOpenError, StoreError
from cache_server.jitter import jitter

log = logging.getLogger("neuron_env.cache")


class Breaker:
    """Closed: requests pass. Open: they are refused at once, so that no job waits for a store that does not answer.

    While it is open, a thread of its own calls `probe` after growing pauses (jittered, so that a fleet does not
    return as one) and closes it again when that succeeds. No request ever pays for probing. A store that answers
    the probe and then fails its first real request is left alone again at once, and for longer. `url` is for
    messages. Safe to use from several threads, and after a fork.
    """

    def __init__(
        self,
        url: str,
        probe: Callable[[], None],
        *,
        failures: int = 3,
        shortest_pause: float = 0.5,
        longest_pause: float = 15.0,
    ) -> None:
        self.opened = 0
        self._url = url
        self._probe = probe
        self._threshold = failures
        self._shortest = self._pause = shortest_pause
        self._longest = longest_pause
        self._failures = 0
        self._open = False
        self._lock = threading.Lock()
        self._prober: threading.Thread | None = None
        self._stopped = threading.Event()

    @property
    def is_open(self) -> bool:
        return self._open

    def check(self) -> None:
        """Raises BreakerOpenError while the store is to be left alone."""
        if not self._open:
            return
        with self._lock:
            self._watch()  # a forked child has no thread yet
        raise BreakerOpenError(
            f"the cache at {self._url} has failed repeatedly and is left alone until it answers again"
        )

    def succeeded(self) -> None:
        """The store answered a request, whatever the answer was."""
        with self._lock:
            self._failures = 0
            self._pause = self._shortest
            self._close()

    def failed(self) -> None:
        """The store gave no useful answer."""
        with self._lock:
            self._failures += 1
            if self._failures >= self._threshold and not self._open:
                self._open = True
                self.opened += 1
                log.info("the cache at %s failed %d times in a row: left alone for now", self._url, self._failures)
                self._watch()

    def stop(self) -> None:
        """Ends the probing for good."""
        self._stopped.set()
        if self._prober is not None:
            self._prober.join(timeout=10)

    def _watch(self) -> None:
        if not self._open or self._stopped.is_set() or (self._prober is not None and self._prober.is_alive()):
            return
        self._prober = threading.Thread(target=self._run, name="neuron-env-probe", daemon=True)
        self._prober.start()

    def _run(self) -> None:
        while not self._stopped.wait(self._next_pause()):
            if not self._open:
                return
            try:
                self._probe()
            except StoreError as error:
                log.debug("the cache at %s is still away: %s", self._url, error)
                continue
            with self._lock:
                self._failures = self._threshold - 1
                self._close()
                self._prober = None
            return

    def _next_pause(self) -> float:
        with self._lock:
            pause = self._pause * jitter(0.5, 1.0)
            self._pause = min(self._pause * 2, self._longest)
        return pause

    def _close(self) -> None:
        if self._open:
            self._open = False
            log.info("the cache at %s answers again", self._url)
