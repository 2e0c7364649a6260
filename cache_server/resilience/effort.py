"""How much time one undertaking may lose to a store that does not work."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar

REQUEST_SECONDS = 5.0  # for a request that belongs to no undertaking


class Effort:
    """A budget of seconds. Everything that a job does with a store between two compiles shares one.

    Failed attempts, the pauses after them and the answers to small questions are charged to it; bytes that arrive
    and waiting for another one's compile are not. Safe to use from several threads.

    `insist`: go on while there is time left, though the store has failed so far, because what is at stake (a
    finished compile, a lease) costs more than asking in vain.
    """

    def __init__(self, seconds: float, *, insist: bool = False) -> None:
        self.insist = insist
        self._left = seconds
        self._lock = threading.Lock()

    @property
    def left(self) -> float:
        """Seconds, 0 or more."""
        return max(0.0, self._left)

    def charge(self, seconds: float) -> None:
        with self._lock:
            self._left -= seconds

    def pause(self, seconds: float) -> None:
        """Sleeps, and charges it."""
        time.sleep(seconds)
        self.charge(seconds)


_current: ContextVar[Effort | None] = ContextVar("neuron_env_effort", default=None)


def effort_of(seconds: float, *, insist: bool = False) -> contextlib.AbstractContextManager[Effort]:
    """A context in which all that this thread asks of stores shares one new budget."""
    return within(Effort(seconds, insist=insist))


@contextlib.contextmanager
def within(effort: Effort) -> Iterator[Effort]:
    """A context in which all that this thread asks of stores is charged to `effort`."""
    token = _current.set(effort)
    try:
        yield effort
    finally:
        _current.reset(token)


def current_effort() -> Effort:
    """The budget of what this thread is about; a fresh one where nobody set one."""
    return _current.get() or Effort(REQUEST_SECONDS)
