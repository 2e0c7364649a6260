"""Writing down what this process asks for, while it works and out of its way."""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable

from cache_server.errors import StoreError
from cache_server.jobs.record import KEY_LIMIT, JobRecord
from cache_server.jobs.shelf import JobShelf, fresh_part
from cache_server.leases.owner import Owner
from cache_server.resilience.effort import effort_of

BATCH_SECONDS = 2.0
_RETRY_SECONDS = 30.0
_PATIENCE_SECONDS = 3.0  # with a store that does not work, at the end of a process too


class _Page:
    """What one process has written, and is yet to write."""

    def __init__(self, host: str) -> None:
        self.lock = threading.Lock()
        self.writing = threading.Lock()
        self.keys: dict[str, str] = {}
        self.dropped = 0
        self.dirty = False
        self.writer: threading.Thread | None = None
        self.pid = os.getpid()
        self.part = fresh_part(host, self.pid)
        self.started_at = time.time()


class JobJournal:
    """The keys of one process, kept in one part of its job's records and written anew when some have come.

    `record` never waits for the store: a thread of its own writes, once in BATCH_SECONDS at most, and the end of the
    process writes what is left. A killed process loses the keys of its last batch. A forked child has a part of its
    own. A store that cannot be written is told to `complain`, and tried again later.
    """

    def __init__(
        self, shelf: JobShelf, job: str, owner: Owner, *, complain: Callable[[StoreError], None] = lambda error: None
    ) -> None:
        self._shelf = shelf
        self._job = job
        self._owner = owner
        self._complain = complain
        self._page = _Page(owner.host)
        me = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _call(me, JobJournal._turn_page))
        atexit.register(lambda: _call(me, JobJournal.flush))

    def record(self, key: str, label: str = "") -> None:
        """Notes that this process asked for `key`."""
        page = self._page
        with page.lock:
            if page.keys.get(key) == label:
                return
            if key not in page.keys and len(page.keys) >= KEY_LIMIT:
                page.dropped += 1
                return
            page.keys[key] = label
            page.dirty = True
            if page.writer is None:
                page.writer = threading.Thread(target=self._write, args=(page,), name="neuron-env-job", daemon=True)
                page.writer.start()

    def flush(self) -> bool:
        """Writes what has not been written; False if it could not be. Raises nothing."""
        page = self._page
        with page.writing:
            with page.lock:
                if not page.dirty:
                    return True
                page.dirty = False
                record = JobRecord(
                    job=self._job,
                    host=self._owner.host,
                    pid=page.pid,
                    user=self._owner.user,
                    started_at=page.started_at,
                    updated_at=time.time(),
                    keys=dict(page.keys),
                    dropped=page.dropped,
                )
            try:
                with effort_of(_PATIENCE_SECONDS):
                    self._shelf.put(self._job, page.part, record.encode())
            except StoreError as error:
                with page.lock:
                    page.dirty = True
                self._complain(error)
                return False
            return True

    def _turn_page(self) -> None:
        self._page = _Page(self._owner.host)

    def _write(self, page: _Page) -> None:
        """Runs in a thread for as long as there is something to write."""
        pause = BATCH_SECONDS
        while True:
            time.sleep(pause)  # in which more keys come
            pause = BATCH_SECONDS if self.flush() else _RETRY_SECONDS
            with page.lock:
                if not page.dirty:
                    page.writer = None
                    return


def _call(reference: weakref.ref[JobJournal], act: Callable[[JobJournal], object]) -> None:
    journal = reference()
    if journal is not None:
        act(journal)
