"""An SQLite file with one writer thread, which may be damaged or thrown away at any time."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from cache_server.service.index.schema import connect, create, is_current

T = TypeVar("T")
Change = Callable[[sqlite3.Connection], None]

_BATCH_SECONDS = 0.02  # how long a change waits for others to share its transaction
_TICK_SECONDS = 1.0  # how often what is merely counted is written
_LOG_LIMIT = 64 << 20  # bytes of the write-ahead log before readers are asked to let go of it

log = logging.getLogger("neuron_env.cache")


class _BusyError(Exception):
    """Another program, such as a person's `sqlite3`, has the file for longer than anybody should."""


class Database:
    """Changes in batches by one thread, reads by any; `at_tick` makes the change that each second may bring.

    A file that is damaged, of another version or another store, or gone, is made anew and empty, whenever that shows;
    `on_new` is called then, in the writer's thread. The caller finds nothing in it and nothing fails. Only one process
    may use a file.
    """

    def __init__(
        self,
        path: Path,
        store_url: str,
        *,
        at_tick: Callable[[], Change | None] = lambda: None,
        after_batch: Callable[[sqlite3.Connection], None] = lambda connection: None,
        on_new: Callable[[], None] = lambda: None,
    ) -> None:
        self.path = path
        self._store_url = store_url
        self._at_tick, self._after_batch, self._on_new = at_tick, after_batch, on_new
        self._wake = threading.Condition()
        self._changes: list[tuple[Change, Callable[[], None]]] = []
        self._closing = False
        self._suspect: Exception | None = None
        self._reading = (threading.Lock(), threading.Lock())
        self._writer, self._readers, fresh = self._open()
        if fresh:
            on_new()
        after_batch(self._writer)
        self._thread = threading.Thread(target=self._run, name="neuron-env-index", daemon=True)
        self._thread.start()

    def submit(self, change: Change, done: Callable[[], None] = lambda: None) -> None:
        """Makes a change soon, and calls `done` in the writer's thread once it is made or cannot be. Never blocks."""
        with self._wake:
            self._changes.append((change, done))
            self._wake.notify()

    def flush(self, timeout: float = 30.0) -> bool:
        """Waits until all changes so far are made; False if that takes too long."""
        reached = threading.Event()
        self.submit(lambda connection: self._tick(connection), reached.set)
        return reached.wait(timeout)

    def read(self, query: Callable[[sqlite3.Connection], T], default: T, *, slow: bool = False) -> T:
        """What `query` returns, or `default` where the file cannot be read: it is then looked after.

        Slow queries wait for each other, and nobody else waits for them.
        """
        which = 1 if slow else 0
        with self._reading[which]:
            try:
                return query(self._readers[which])
            except sqlite3.Error as error:
                with self._wake:
                    self._suspect = error
                    self._wake.notify()
                return default

    def close(self) -> None:
        """Makes the changes that are left, and closes the file."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()
        self._close_all()

    def _run(self) -> None:
        while True:
            with self._wake:
                if not self._changes and not self._closing:
                    self._wake.wait(_TICK_SECONDS)
                if self._changes and not self._closing:
                    self._wake.wait_for(lambda: self._closing, _BATCH_SECONDS)
                batch, self._changes = self._changes, []
                suspect, self._suspect = self._suspect, None
                closing = self._closing
            try:
                self._write(batch, suspect)
            except _BusyError:
                if not closing:
                    with self._wake:
                        self._changes[:0] = batch
                    continue
                log.warning("the index %s is in somebody else's use; its last changes are lost", self.path)
            for _, done in batch:
                done()
            if closing:
                with self._wake:
                    if not self._changes:
                        return

    def _write(self, batch: list[tuple[Change, Callable[[], None]]], suspect: Exception | None) -> None:
        try:
            if suspect is not None or not self.path.exists():
                self._make_anew(suspect)
            try:
                self._transact(batch)
            except sqlite3.Error as error:
                if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
                    raise _BusyError from error
                self._make_anew(error)
                self._transact(batch)
        except (sqlite3.Error, OSError) as error:
            log.warning("the index %s could not be written: %s", self.path, error)
            with self._wake:
                self._suspect = error  # something is missing in it

    def _transact(self, batch: list[tuple[Change, Callable[[], None]]]) -> None:
        connection = self._writer
        connection.execute("BEGIN IMMEDIATE")
        try:
            for change, _ in batch:
                change(connection)
            self._tick(connection)
            connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise
        self._after_batch(connection)
        with contextlib.suppress(OSError):
            if self.path.with_name(f"{self.path.name}-wal").stat().st_size > _LOG_LIMIT:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _tick(self, connection: sqlite3.Connection) -> None:
        if (change := self._at_tick()) is not None:
            change(connection)

    def _open(self) -> tuple[sqlite3.Connection, tuple[sqlite3.Connection, ...], bool]:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(sqlite3.Error):
            connection = connect(self.path)
            try:
                if is_current(connection, self._store_url):
                    return connection, (connect(self.path), connect(self.path)), False
            except BaseException:
                connection.close()
                raise
            connection.close()
        for suffix in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        connection = connect(self.path)
        try:
            create(connection, self._store_url)
            return connection, (connect(self.path), connect(self.path)), True
        except BaseException:
            connection.close()
            raise

    def _make_anew(self, error: Exception | None) -> None:
        log.warning("the index %s is %s; it is made again from the store", self.path, error or "gone")
        with self._reading[0], self._reading[1]:
            self._close_connections()
            for suffix in ("", "-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
            self._writer, self._readers, _ = self._open()
        self._on_new()

    def _close_all(self) -> None:
        with self._reading[0], self._reading[1]:
            self._close_connections()

    def _close_connections(self) -> None:
        for connection in (*self._readers, self._writer):
            connection.close()
