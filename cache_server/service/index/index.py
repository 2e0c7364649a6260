"""What this replica knows of the store."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from cache_server.administration.collection import HOUR
from cache_server.administration.retention import Candidate
from cache_server.administration.usage import Use, Uses
from cache_server.backends import Found
from cache_server.errors import CacheError
from cache_server.service.index import queries
from cache_server.service.index.database import Database
from cache_server.service.index.queries import Coverage
from cache_server.service.index.rows import BlobRow, EntryRow, Stock
from cache_server.service.index.schema import SETTLED, UNSURE
from cache_server.service.index.tally import Tally

_ENTRY = """
INSERT INTO entries
    (namespace, key, kind, size, own, version, created, used, uses, label, saved, host, text, expires, epoch,
     took, seen)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET
    kind = excluded.kind, size = excluded.size, own = excluded.own, version = excluded.version,
    created = excluded.created, used = max(used, excluded.used), label = excluded.label, saved = excluded.saved,
    host = excluded.host, text = excluded.text, expires = excluded.expires, epoch = excluded.epoch,
    took = excluded.took, seen = excluded.seen
"""
_BLOB = """
INSERT INTO blobs VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET size = excluded.size, modified = excluded.modified, seen = excluded.seen,
    sure = CASE WHEN version = excluded.version THEN min(sure, excluded.sure) ELSE excluded.sure END,
    version = excluded.version
"""
_KEPT_EVICTIONS = 1000


class Index:
    """Entries, blobs and who names them, last uses, totals and counters.

    Whatever changes it returns at once, and is read within some 20 ms, or after `flush`. Reading never fails: what is
    not known is absent. Safe from every thread. `stock` is kept in memory. `grace` is how many seconds a blob may wait
    for the entry that names it. One process may use a directory; raises CacheError if another one does.
    """

    def __init__(
        self, directory: Path, store_url: str, *, grace: float = HOUR, on_new: Callable[[], None] = lambda: None
    ) -> None:
        self._lock_fd = _lock(directory)
        self._on_new = on_new
        self._stock = Stock(0, 0, {})
        self._tally = Tally()
        self._scan = 0
        # No blob is taken for unused before a scan of this process's life is complete: what was told last before a kill
        # may be missing in the file.
        self._coverage = Coverage()
        self._grace = grace
        self._began = 0.0
        self._scanned_at: float | None = None
        self._looked_through = False
        self._whole = True  # nothing that was told has been lost since the running scan began
        self._gone: set[tuple[str, str]] = set()  # removed while a scan runs, which may still list it
        self._state = threading.Lock()
        try:
            self._database = Database(
                directory / "index.sqlite",
                store_url,
                at_tick=self._tally.drain,
                after_batch=self._after_batch,
                on_new=self._made_anew,
            )
        except (sqlite3.Error, OSError) as error:
            os.close(self._lock_fd)
            raise CacheError(
                f"cannot keep an index in {directory}: {error}", hint="name another `--state-dir`"
            ) from error
        self._scan = self._database.read(_last_scan, 0)
        self._looked_through = self._looked_through or self._scan > 0

    def close(self) -> None:
        self._database.close()
        os.close(self._lock_fd)

    def flush(self, within: float = 30.0) -> bool:
        """Waits until all that was told so far can be read; False if that takes longer than `within` seconds."""
        return self._database.flush(within)

    @property
    def path(self) -> Path:
        return self._database.path

    @property
    def stock(self) -> Stock:
        """What the store has."""
        return self._stock

    @property
    def scanned_at(self) -> float | None:
        """When the last whole look through the store began, in seconds since 1970; None before there was one."""
        return self._scanned_at

    @property
    def looked_through(self) -> bool:
        """Whether a whole look through the store is in the index, be it of an earlier life: what is listed is all."""
        return self._looked_through

    @property
    def complete(self) -> bool:
        """Whether this process has looked through the whole store, so that it knows what nobody needs."""
        return self._coverage != Coverage()

    # What passes through this replica.

    def put_entry(self, row: EntryRow, done: Callable[[], None] = lambda: None) -> None:
        """An entry or plain object is in the store."""
        scan = self._appears("entry", f"{row.namespace}/{row.key}")
        self._database.submit(lambda connection: _put_entry(connection, row, scan), done)

    def remove_entry(self, namespace: str, key: str) -> None:
        self._goes("entry", f"{namespace}/{key}")
        self._database.submit(lambda connection: _remove_entry(connection, namespace, key))

    def put_blob(self, found: Found, *, created: bool, done: Callable[[], None] = lambda: None) -> None:
        """A blob is in the store. `created`: nothing was there before, so nobody can have named it yet."""
        sha256 = found.path.rpartition("/")[2]
        scan = self._appears("blob", sha256)
        values = (sha256, found.size, found.version, found.modified_at, scan, SETTLED if created else UNSURE)
        self._database.submit(lambda connection: _run(connection, _BLOB, values), done)

    def remove_blob(self, sha256: str) -> None:
        self._goes("blob", sha256)
        self._database.submit(lambda connection: _run(connection, "DELETE FROM blobs WHERE sha256 = ?", (sha256,)))

    def mark_pinned(self, namespace: str, pinned: Iterable[str]) -> None:
        """Which entries of a namespace are pinned; the others are not."""
        keys = list(pinned)
        self._database.submit(lambda connection: _mark_pinned(connection, namespace, keys))

    def set_pinned(self, namespace: str, key: str, pinned: bool) -> None:
        """An entry was pinned, or its pin was taken away."""
        statement = "UPDATE entries SET pinned = ? WHERE namespace = ? AND key = ?"
        self._database.submit(lambda connection: _run(connection, statement, (int(pinned), namespace, key)))

    def use(self, namespace: str, name: str, at: float, count: int = 1) -> None:
        """An entry (by key) or a plain object (by path) was used, or stored (`count` 0). Costs no transaction."""
        self._tally.use(namespace, name, Use(at, count))

    def learn(self, uses: Uses) -> None:
        """Takes over what other replicas told of last uses."""
        self._tally.learn(uses)

    def count(self, namespace: str, **amounts: float) -> None:
        """Adds to counters of a namespace, and of this minute."""
        self._tally.count(namespace, amounts)

    def evicted(self, row: EntryRow, freed: int, reason: str) -> None:
        """Remembers an eviction for the statistics."""
        self.count(row.namespace, evictions=1, evicted_bytes=freed)
        values = (time.time(), row.namespace, row.key, row.label, freed, reason)
        self._database.submit(lambda connection: _note_eviction(connection, values))

    def take_unshared_uses(self) -> Uses:
        return self._tally.take_unshared()

    def give_back_uses(self, uses: Uses) -> None:
        self._tally.give_back(uses)

    # What the scanner finds.

    def begin_scan(self) -> int:
        """The number of a new scan, which is told with all that it finds."""
        with self._state:
            self._scan += 1
            self._began = time.time()
            self._whole = True
            self._gone.clear()
            return self._scan

    def scanned_blobs(self, found: Iterable[Found], scan: int) -> None:
        rows = [(it.path.rpartition("/")[2], it.size, it.version, it.modified_at, scan, scan) for it in found]

        def change(connection: sqlite3.Connection) -> None:
            connection.executemany(_BLOB, [row for row in rows if ("blob", row[0]) not in self._gone])

        self._database.submit(change)

    def scanned_entries(self, rows: Iterable[EntryRow], unchanged: Iterable[tuple[str, str]], scan: int) -> None:
        """Entries that were read, and those that are as the index knows them."""
        read, same = list(rows), [(scan, *place) for place in unchanged]

        def change(connection: sqlite3.Connection) -> None:
            for row in read:
                if ("entry", f"{row.namespace}/{row.key}") not in self._gone:
                    _put_entry(connection, row, scan)
            connection.executemany("UPDATE entries SET seen = ? WHERE namespace = ? AND key = ?", same)

        self._database.submit(change)

    def end_scan(self, scan: int, *, manifests_complete: bool) -> None:
        """Forgets what the scan did not find. Blobs may be taken for unused only if every manifest was understood."""

        began = self._began

        def change(connection: sqlite3.Connection) -> None:
            self._scanned_at, self._looked_through = began, True
            connection.execute("DELETE FROM entries WHERE seen < ?", (scan,))
            connection.execute("DELETE FROM blobs WHERE seen < ?", (scan,))
            connection.execute("INSERT OR REPLACE INTO meta VALUES ('scan', ?)", (str(scan),))
            if manifests_complete and self._whole:
                # Whoever stores a blob publishes it within the grace, or stores it again: so of those that were older
                # than that when the scan began, every manifest that names them was there to be seen.
                self._coverage = Coverage(scan, self._began - self._grace)

        self._database.submit(change)

    # What is read.

    def known_versions(self, places: list[tuple[str, str]]) -> dict[tuple[str, str], str]:
        return self._database.read(lambda connection: queries.known_versions(connection, places), {})

    def entry(self, namespace: str, key: str) -> EntryRow | None:
        return self._database.read(lambda connection: queries.entry(connection, namespace, key), None)

    def blob(self, sha256: str) -> BlobRow | None:
        coverage = self._coverage
        return self._database.read(lambda connection: queries.blob(connection, sha256, coverage), None)

    def users(self, sha256: str, namespace: str | None = None) -> int:
        """How many entries name a blob; 1 where that cannot be read, so that it is not taken for unused."""
        return self._database.read(lambda connection: queries.users(connection, sha256, namespace), 1, slow=True)

    def coldest(self, namespace: str | None, after: tuple[float, str], limit: int) -> list[Candidate]:
        return self._database.read(
            lambda connection: queries.coldest(connection, namespace, after, limit), [], slow=True
        )

    def overdue(self, *, now: float, unused_since: float | None, limit: int) -> list[Candidate]:
        return self._database.read(
            lambda connection: queries.overdue(connection, now=now, unused_since=unused_since, limit=limit),
            [],
            slow=True,
        )

    def orphans(self, *, before: float, limit: int) -> list[BlobRow]:
        coverage = self._coverage
        return self._database.read(
            lambda connection: queries.orphans(connection, before=before, coverage=coverage, limit=limit),
            [],
            slow=True,
        )

    def listing(
        self,
        namespace: str,
        *,
        limit: int = 100,
        cursor: str | None = None,
        kind: str | None = None,
        label: str | None = None,
        sort: str = "created",
        prefix: str = "",
    ) -> tuple[list[EntryRow], str | None]:
        """A page of entries and the cursor of the next. Raises ValueError for an order or cursor that is none."""
        nothing: tuple[list[EntryRow], str | None] = ([], None)
        return self._database.read(
            lambda connection: queries.page(
                connection, namespace, limit=limit, cursor=cursor, kind=kind, label=label, sort=sort, prefix=prefix
            ),
            nothing,
        )

    def holding(self, namespace: str, *, now: float) -> dict[str, Any]:
        """What a namespace holds, in more detail than `stock`: each entry is looked at."""
        return self._database.read(lambda connection: queries.holding(connection, namespace, now), {}, slow=True)

    def statistics(self) -> dict[str, Any]:
        empty: dict[str, Any] = {"counters": {}, "history": [], "recent_failures": [], "recent_evictions": []}
        return self._database.read(queries.statistics, empty)

    def _appears(self, what: str, name: str) -> int:
        with self._state:
            self._gone.discard((what, name))
            return self._scan

    def _goes(self, what: str, name: str) -> None:
        with self._state:
            self._gone.add((what, name))

    def _after_batch(self, connection: sqlite3.Connection) -> None:
        self._stock = queries.stock(connection)

    def _made_anew(self) -> None:
        self._coverage, self._whole, self._looked_through = Coverage(), False, False
        self._on_new()


def _put_entry(connection: sqlite3.Connection, row: EntryRow, scan: int) -> None:
    values = (
        row.namespace,
        row.key,
        row.kind,
        row.size,
        row.own_bytes,
        row.version,
        row.created_at,
        row.used_at,
        row.uses,
        row.label,
        row.compile_seconds,
        row.host,
        row.text,
        row.expires_at,
        row.epoch,
        row.took_seconds,
        scan,
    )
    connection.execute(_ENTRY, values)
    named = {it[0] for it in connection.execute("SELECT sha256 FROM refs WHERE namespace = ? AND key = ?", values[:2])}
    wanted = {blob.sha256: blob.size for blob in row.blobs}
    for sha256 in named - wanted.keys():
        connection.execute("DELETE FROM refs WHERE sha256 = ? AND namespace = ? AND key = ?", (sha256, *values[:2]))
    for sha256 in wanted.keys() - named:
        connection.execute("INSERT INTO refs VALUES (?, ?, ?, ?)", (sha256, *values[:2], wanted[sha256]))


def _remove_entry(connection: sqlite3.Connection, namespace: str, key: str) -> None:
    connection.execute("DELETE FROM entries WHERE namespace = ? AND key = ?", (namespace, key))


def _run(connection: sqlite3.Connection, statement: str, values: tuple[Any, ...]) -> None:
    connection.execute(statement, values)


def _mark_pinned(connection: sqlite3.Connection, namespace: str, keys: list[str]) -> None:
    connection.execute("UPDATE entries SET pinned = 0 WHERE namespace = ? AND pinned = 1", (namespace,))
    connection.executemany(
        "UPDATE entries SET pinned = 1 WHERE namespace = ? AND key = ?", [(namespace, key) for key in keys]
    )


def _note_eviction(connection: sqlite3.Connection, values: tuple[Any, ...]) -> None:
    connection.execute("INSERT INTO evictions VALUES (?, ?, ?, ?, ?, ?)", values)
    connection.execute(
        "DELETE FROM evictions WHERE rowid <= (SELECT max(rowid) FROM evictions) - ?", (_KEPT_EVICTIONS,)
    )


def _last_scan(connection: sqlite3.Connection) -> int:
    row = connection.execute("SELECT value FROM meta WHERE name = 'scan'").fetchone()
    return int(row[0]) if row else 0


def _lock(directory: Path) -> int:
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CacheError(f"cannot keep an index in {directory}: {error}", hint="name another `--state-dir`") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise CacheError(
            f"another process of the service keeps its index in {directory}",
            hint="give each replica a `--state-dir` of its own",
        ) from None
    return fd
