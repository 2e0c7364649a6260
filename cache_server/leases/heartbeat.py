"""Renewing a lease in the background while its owner compiles."""

from __future__ import annotations

import logging
import threading
from types import TracebackType

from cache_server.errors import LeaseLostError, StoreError
from cache_server.leases.coordinator import HeldLease
from cache_server.resilience.effort import effort_of

log = logging.getLogger("neuron_env.cache")

_BEAT_SECONDS = 5.0  # how long one renewal is tried


class Heartbeat:
    """A context in which `lease` is renewed every third of its duration, so that two beats may fail.

    A store that cannot be written is tried again at the next beat; a lost lease ends the beating. Neither interrupts
    the compile: what it makes is of use to this process in any case, and publishing finds out.
    """

    def __init__(self, lease: HeldLease) -> None:
        self._lease = lease
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="neuron-env-lease", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        # A store that hangs must not hang the job as well; the thread is a daemon and ends with it.
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        while not self._done.wait(self._lease.seconds / 3):
            try:
                # A beat keeps no job waiting, and a lease that lapses costs the compile: so it is worth insisting.
                with effort_of(min(_BEAT_SECONDS, self._lease.seconds / 3), insist=True):
                    self._lease.renew()
            except LeaseLostError as error:
                log.warning("%s", error)
                return
            except StoreError as error:
                log.warning("a lease could not be renewed: %s", error)
