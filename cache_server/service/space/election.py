"""Which replica collects: the one that holds a lease in the store."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable

from cache_server.errors import ConflictError, LeaseLostError, StoreError
from cache_server.leases.lease import Lease
from cache_server.leases.observer import Observer, Vacant
from cache_server.leases.owner import Owner
from cache_server.leases.records import RecordStore

# No namespace begins with an underscore, and no key is a word.
RECORD = "_service/collector"
LEASE_SECONDS = 30.0
_LOOK_SECONDS = 2.0  # between two looks at the lease of another

log = logging.getLogger("neuron_env.cache.server")


class Election:
    """Holds the lease, or watches for its holder's end, in a thread of its own.

    Two replicas that both believe to be elected, as around a takeover, do each other no harm: every step of a
    collection is conditional. `excludes` says whether the store's records exclude at all; where they do not, every
    replica collects.
    """

    def __init__(
        self,
        records: RecordStore,
        *,
        excludes: Callable[[], bool],
        seconds: float = LEASE_SECONDS,
        on_elected: Callable[[], None] = lambda: None,
    ) -> None:
        self._records = records
        self._excludes = excludes
        self._seconds = seconds
        self._on_elected = on_elected
        self._observer = Observer(RECORD.rpartition("/")[2], default_lease_seconds=seconds)
        self._lease: Lease | None = None
        self._elected = False
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="neuron-env-election", daemon=True)

    @property
    def elected(self) -> bool:
        return self._elected

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Gives the lease back, so that another replica need not wait for its end."""
        self._done.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=10.0)
        if self._lease is not None:
            with contextlib.suppress(LeaseLostError, StoreError, ConflictError):
                self._lease.release("the replica ended")

    def step(self) -> None:
        """Renews the lease, or takes it if it is to be had. Blocks."""
        try:
            if self._lease is not None:
                self._lease.renew()
            elif not self._excludes():
                self._become(True)
            else:
                self._claim()
        except LeaseLostError:
            log.warning("another replica collects now")
            self._lease = None
            self._become(False)
        except ConflictError:
            return  # somebody was faster
        except StoreError as error:
            log.warning("cannot tell which replica collects: %s", error)

    def _claim(self) -> None:
        now = time.monotonic()
        verdict = self._observer.judge(self._records.read(RECORD), now)
        if isinstance(verdict, Vacant):
            owner = Owner.here()
            self._lease = Lease.claim(self._records, RECORD, verdict, owner=owner, lease_seconds=self._seconds)
            self._become(True)

    def _become(self, elected: bool) -> None:
        changed, self._elected = elected != self._elected, elected
        if changed and elected:
            log.info("this replica collects from now on")
            self._on_elected()

    def _run(self) -> None:
        while True:
            self.step()
            if self._done.wait(self._seconds / 3 if self._elected else min(self._seconds / 3, _LOOK_SECONDS)):
                return
