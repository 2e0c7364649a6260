"""What is read from the index."""

from __future__ import annotations

import base64
import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from cache_server.administration.retention import Candidate
from cache_server.backends import Found
from cache_server.manifest import Blob
from cache_server.service.index.rows import NEFF, BlobRow, EntryRow, NamespaceStock, Stock
from cache_server.service.index.schema import SETTLED
from cache_server.store import blob_path

SORTS = {"created": "created", "used": "used", "size": "size", "saved": "saved"}
_COLUMNS = (
    "namespace, key, kind, own, created, used, version, uses, label, saved, host, text, expires, epoch, took, pinned"
)


def entry(connection: sqlite3.Connection, namespace: str, key: str) -> EntryRow | None:
    rows = _entries(connection, "WHERE namespace = ? AND key = ?", (namespace, key))
    return rows[0] if rows else None


def page(
    connection: sqlite3.Connection,
    namespace: str,
    *,
    limit: int,
    cursor: str | None,
    kind: str | None,
    label: str | None,
    sort: str,
    prefix: str = "",
) -> tuple[list[EntryRow], str | None]:
    """Entries of a namespace, the largest of `sort` first, and the cursor of the next page. Raises ValueError."""
    column = SORTS.get(sort)
    if column is None:
        raise ValueError(f"no such order: {sort[:40]!r}; choose one of {', '.join(SORTS)}")
    wheres, arguments = ["namespace = ?", "kind <> 'plain'"], list[Any]([namespace])
    if kind is not None:
        wheres.append("kind = ?")
        arguments.append(kind)
    if label:
        wheres.append("instr(label, ?) > 0")
        arguments.append(label)
    if prefix:
        wheres.append("key >= ? AND key < ?")
        arguments += [prefix, prefix + "g"]  # what follows every hexadecimal digit
    if cursor is not None:
        wheres.append(f"({column}, key) < (?, ?)")
        arguments += _after(cursor, sort)
    chosen = f"SELECT key FROM entries WHERE {' AND '.join(wheres)} ORDER BY {column} DESC, key DESC LIMIT ?"  # noqa: S608
    keys = [row[0] for row in connection.execute(chosen, (*arguments, limit + 1))]
    # Apart, so that every row is found by its key; asked at once, the planner may walk through all of them.
    found = [row for key in keys if (row := entry(connection, namespace, key)) is not None]
    if len(found) <= limit:
        return found, None
    last = found[limit - 1]
    value = {
        "created": last.created_at,
        "used": last.used_at,
        "size": last.size,
        "saved": last.compile_seconds,
    }[sort]
    return found[:limit], base64.urlsafe_b64encode(json.dumps([sort, value, last.key]).encode()).decode()


def coldest(
    connection: sqlite3.Connection, namespace: str | None, after: tuple[float, str], limit: int
) -> list[Candidate]:
    """The entries that come after `after` in the order of going: not pinned, no failures."""
    where, values = "WHERE kind <> 'failure' AND pinned = 0 AND (used, key) > (?, ?)", list[Any](after)
    if namespace is not None:
        where += " AND namespace = ?"
        values.append(namespace)
    rows = _entries(connection, f"{where} ORDER BY used, key LIMIT ?", (*values, limit))
    return [_candidate(row) for row in rows]


def overdue(connection: sqlite3.Connection, *, now: float, unused_since: float | None, limit: int) -> list[Candidate]:
    """Expired failures, and entries whose last use is before `unused_since`."""
    where, values = "pinned = 0 AND (expires <= ?", [now]
    if unused_since is not None:
        where += " OR used < ?"
        values.append(unused_since)
    rows = _entries(connection, f"WHERE {where}) LIMIT ?", (*values, limit))
    return [_candidate(row) for row in rows]


def users(connection: sqlite3.Connection, sha256: str, namespace: str | None = None) -> int:
    """How many entries name a blob."""
    if namespace is None:
        row = connection.execute("SELECT count(*) FROM refs WHERE sha256 = ?", (sha256,)).fetchone()
    else:
        where = "WHERE sha256 = ? AND namespace = ?"
        row = connection.execute(f"SELECT count(*) FROM refs {where}", (sha256, namespace)).fetchone()  # noqa: S608
    return int(row[0])


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the last complete scan of this process's life has settled: blobs written before `written_before`, and seen
    by this scan or an earlier one. Before there was one, nothing is settled.
    """

    scan: int = -1
    written_before: float = 0.0


def blob(connection: sqlite3.Connection, sha256: str, coverage: Coverage) -> BlobRow | None:
    row = connection.execute("SELECT * FROM blobs WHERE sha256 = ?", (sha256,)).fetchone()
    return None if row is None else _blob(row, coverage)


def orphans(connection: sqlite3.Connection, *, before: float, coverage: Coverage, limit: int) -> list[BlobRow]:
    """Blobs that nothing names and that were written before `before`, of which that is certain."""
    rows = connection.execute(
        "SELECT * FROM blobs WHERE modified < ? AND sure <= ? AND (sure = 0 OR modified < ?) "
        "AND NOT EXISTS (SELECT 1 FROM refs WHERE refs.sha256 = blobs.sha256) LIMIT ?",
        (before, coverage.scan, coverage.written_before, limit),
    )
    return [_blob(row, coverage) for row in rows]


def known_versions(connection: sqlite3.Connection, places: list[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """The versions of those of the entries that are in the index."""
    known = {}
    for place in places:
        row = connection.execute("SELECT version FROM entries WHERE namespace = ? AND key = ?", place).fetchone()
        if row is not None:
            known[place] = row[0]
    return known


def holding(connection: sqlite3.Connection, namespace: str, now: float) -> dict[str, Any]:
    """Counts and sums over the entries of a namespace."""
    neffs, expired, pinned, saved = connection.execute(
        "SELECT coalesce(sum(kind = 'neff'), 0), coalesce(sum(kind = 'failure' AND expires <= ?), 0),"
        " coalesce(sum(pinned), 0), coalesce(sum(saved), 0.0) FROM entries WHERE namespace = ?",
        (now, namespace),
    ).fetchone()
    (named,) = connection.execute(
        "SELECT coalesce(sum(size), 0) FROM (SELECT DISTINCT sha256, size FROM refs WHERE namespace = ?)", (namespace,)
    ).fetchone()
    return {
        "neffs": neffs,
        "neff_bytes": named,
        "expired_failures": expired,
        "pinned": pinned,
        "compile_seconds": round(saved, 3),
    }


def stock(connection: sqlite3.Connection) -> Stock:
    blobs, blob_bytes, own_bytes = connection.execute("SELECT * FROM stock").fetchone()
    namespaces = {row[0]: NamespaceStock(*row[1:]) for row in connection.execute("SELECT * FROM totals")}
    return Stock(blobs, blob_bytes + own_bytes, namespaces)


def statistics(connection: sqlite3.Connection, *, recent: int = 20) -> dict[str, Any]:
    """Counters by namespace, the history by the minute, what failed and what was evicted last."""
    counters: dict[str, dict[str, float]] = {}
    for namespace, name, value in connection.execute("SELECT * FROM counters"):
        counters.setdefault(namespace, {})[name] = value
    minutes: dict[int, dict[str, float]] = {}
    for minute, name, value in connection.execute("SELECT * FROM minutes ORDER BY minute"):
        minutes.setdefault(minute, {})[name] = value
    failed = _entries(connection, "WHERE kind = 'failure' ORDER BY created DESC LIMIT ?", (recent,))
    evicted = connection.execute("SELECT * FROM evictions ORDER BY at DESC LIMIT ?", (recent,))
    names = ("at", "namespace", "key", "label", "bytes", "reason")
    return {
        "counters": counters,
        "history": [{"at": minute * 60, **values} for minute, values in minutes.items()],
        "recent_failures": failed,
        "recent_evictions": [dict(zip(names, row, strict=True)) for row in evicted],
    }


def _entries(connection: sqlite3.Connection, where: str, values: tuple[Any, ...]) -> list[EntryRow]:
    rows = connection.execute(f"SELECT {_COLUMNS} FROM entries {where}", values).fetchall()  # noqa: S608  no input
    named = "SELECT sha256, size FROM refs WHERE namespace = ? AND key = ?"
    entries = []
    for row in rows:
        (
            namespace,
            key,
            kind,
            own,
            created,
            used,
            version,
            uses,
            label,
            saved,
            host,
            text,
            expires,
            epoch,
            took,
            pinned,
        ) = row
        blobs = (Blob(*it) for it in connection.execute(named, (namespace, key))) if kind == NEFF else ()
        entries.append(
            EntryRow(
                namespace,
                key,
                kind,
                own,
                created,
                used,
                frozenset(blobs),
                version,
                uses,
                label,
                saved,
                host,
                text,
                expires,
                epoch,
                took,
                bool(pinned),
            )
        )
    return entries


def _candidate(row: EntryRow) -> Candidate:
    return Candidate(
        row.namespace,
        row.key,
        row.blobs,
        created_at=row.created_at,
        used_at=row.used_at,
        own_bytes=row.own_bytes,
        expires_at=row.expires_at,
        pinned=row.pinned,
    )


def _blob(row: tuple[Any, ...], coverage: Coverage) -> BlobRow:
    sha256, size, version, modified, _, sure = row
    settled = sure <= coverage.scan and (sure == SETTLED or modified < coverage.written_before)
    return BlobRow(Found(blob_path(sha256), size, modified, version), settled)


def _after(cursor: str, sort: str) -> list[Any]:
    try:
        found, value, key = json.loads(base64.urlsafe_b64decode(cursor.encode()))
        if found != sort or not isinstance(value, int | float) or not isinstance(key, str):
            raise ValueError
    except ValueError:
        raise ValueError(f"the cursor is not one of a listing by {sort}: {cursor[:80]!r}") from None
    return [value, key]
