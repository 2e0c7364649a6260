"""The tables of the index, and the triggers that keep their totals."""

from __future__ import annotations

import sqlite3
from pathlib import Path

VERSION = 2  # another version's file is thrown away: the store has all of it
SETTLED = 0  # `blobs.sure` of a blob that this replica stored where there was none: who names it, it knows
UNSURE = 1 << 60  # `blobs.sure` of a blob that others may have named: the next whole scan tells

_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- NEFFs, remembered failures and plain objects (whose key is their path, and which have no refs). `own` is what an
-- entry has beside its blobs, `size` what it shows; `seen` is the last scan that saw it, `version` what the store calls
-- its state.
CREATE TABLE entries (
    namespace TEXT NOT NULL, key TEXT NOT NULL, kind TEXT NOT NULL, size INTEGER NOT NULL, own INTEGER NOT NULL,
    version TEXT NOT NULL, created REAL NOT NULL, used REAL NOT NULL, uses INTEGER NOT NULL DEFAULT 0,
    label TEXT NOT NULL, saved REAL NOT NULL, host TEXT NOT NULL, text TEXT NOT NULL, expires REAL,
    epoch INTEGER NOT NULL DEFAULT 0, took REAL NOT NULL DEFAULT 0,
    pinned INTEGER NOT NULL DEFAULT 0, seen INTEGER NOT NULL,
    PRIMARY KEY (namespace, key)
) WITHOUT ROWID;
-- Each has all that a page is chosen by.
CREATE INDEX entries_created ON entries (namespace, created, key, kind, label);
CREATE INDEX entries_used ON entries (namespace, used, key, kind, label);
CREATE INDEX entries_size ON entries (namespace, size, key, kind, label);
CREATE INDEX entries_saved ON entries (namespace, saved, key, kind, label);
CREATE INDEX entries_coldest ON entries (used, key) WHERE kind <> 'failure' AND pinned = 0;
CREATE INDEX entries_failed ON entries (created) WHERE kind = 'failure';

-- `sure` is the scan that saw this version of the blob before it looked for manifests that name it.
CREATE TABLE blobs (
    sha256 TEXT PRIMARY KEY, size INTEGER NOT NULL, version TEXT NOT NULL, modified REAL NOT NULL,
    seen INTEGER NOT NULL, sure INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE refs (
    sha256 TEXT NOT NULL, namespace TEXT NOT NULL, key TEXT NOT NULL, size INTEGER NOT NULL,
    PRIMARY KEY (sha256, namespace, key)
) WITHOUT ROWID;
CREATE INDEX refs_of_entry ON refs (namespace, key);

-- Bytes of a namespace: what its entries have and name, a blob once.
CREATE TABLE totals (
    namespace TEXT PRIMARY KEY, entries INTEGER NOT NULL DEFAULT 0, failures INTEGER NOT NULL DEFAULT 0,
    plain INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
CREATE TABLE stock (blobs INTEGER NOT NULL, blob_bytes INTEGER NOT NULL, own_bytes INTEGER NOT NULL);
INSERT INTO stock VALUES (0, 0, 0);

CREATE TABLE counters (namespace TEXT, name TEXT, value REAL NOT NULL, PRIMARY KEY (namespace, name)) WITHOUT ROWID;
CREATE TABLE minutes (minute INTEGER, name TEXT, value REAL NOT NULL, PRIMARY KEY (minute, name)) WITHOUT ROWID;
CREATE TABLE evictions (at REAL, namespace TEXT, key TEXT, label TEXT, bytes INTEGER, reason TEXT);
"""

_TRIGGERS = """
CREATE TRIGGER entry_made AFTER INSERT ON entries BEGIN
    INSERT OR IGNORE INTO totals (namespace) VALUES (new.namespace);
    UPDATE totals SET entries = entries + (new.kind = 'neff'), failures = failures + (new.kind = 'failure'),
        plain = plain + (new.kind = 'plain'), bytes = bytes + new.own WHERE namespace = new.namespace;
    UPDATE stock SET own_bytes = own_bytes + new.own;
END;
CREATE TRIGGER entry_gone AFTER DELETE ON entries BEGIN
    UPDATE totals SET entries = entries - (old.kind = 'neff'), failures = failures - (old.kind = 'failure'),
        plain = plain - (old.kind = 'plain'), bytes = bytes - old.own WHERE namespace = old.namespace;
    UPDATE stock SET own_bytes = own_bytes - old.own;
    DELETE FROM refs WHERE namespace = old.namespace AND key = old.key;
END;
CREATE TRIGGER entry_changed AFTER UPDATE OF own, kind ON entries BEGIN
    UPDATE totals SET entries = entries - (old.kind = 'neff') + (new.kind = 'neff'),
        failures = failures - (old.kind = 'failure') + (new.kind = 'failure'),
        plain = plain - (old.kind = 'plain') + (new.kind = 'plain'),
        bytes = bytes - old.own + new.own WHERE namespace = new.namespace;
    UPDATE stock SET own_bytes = own_bytes - old.own + new.own;
END;
CREATE TRIGGER ref_made AFTER INSERT ON refs
    WHEN (SELECT count(*) FROM refs WHERE sha256 = new.sha256 AND namespace = new.namespace) = 1 BEGIN
    INSERT OR IGNORE INTO totals (namespace) VALUES (new.namespace);
    UPDATE totals SET bytes = bytes + new.size WHERE namespace = new.namespace;
END;
CREATE TRIGGER ref_gone AFTER DELETE ON refs
    WHEN NOT EXISTS (SELECT 1 FROM refs WHERE sha256 = old.sha256 AND namespace = old.namespace) BEGIN
    UPDATE totals SET bytes = bytes - old.size WHERE namespace = old.namespace;
END;
CREATE TRIGGER blob_made AFTER INSERT ON blobs BEGIN
    UPDATE stock SET blobs = blobs + 1, blob_bytes = blob_bytes + new.size;
END;
CREATE TRIGGER blob_gone AFTER DELETE ON blobs BEGIN
    UPDATE stock SET blobs = blobs - 1, blob_bytes = blob_bytes - old.size;
END;
CREATE TRIGGER blob_changed AFTER UPDATE OF size ON blobs BEGIN
    UPDATE stock SET blob_bytes = blob_bytes - old.size + new.size;
END;
"""


def connect(path: Path) -> sqlite3.Connection:
    """A connection for one thread at a time. Raises sqlite3.Error."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10.0)
    try:
        # With a write-ahead log, a crash loses at most the last moments, which the next scan finds again.
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "cache_size=-16384", "journal_size_limit=16777216"):
            connection.execute(f"PRAGMA {pragma}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def is_current(connection: sqlite3.Connection, store_url: str) -> bool:
    """Whether the file has this version's tables, of this store. Raises sqlite3.Error where it is damaged."""
    if connection.execute("PRAGMA user_version").fetchone()[0] != VERSION:
        return False
    # Looks at a page of each table, for damage that shows at once; the rest shows where it is read.
    connection.execute(
        "SELECT (SELECT max(used) FROM entries), (SELECT max(sha256) FROM blobs), (SELECT blobs FROM stock)"
    )
    row = connection.execute("SELECT value FROM meta WHERE name = 'store'").fetchone()
    return row is not None and row[0] == store_url


def create(connection: sqlite3.Connection, store_url: str) -> None:
    """Makes the tables in an empty file. Raises sqlite3.Error."""
    connection.executescript(f"BEGIN; {_TABLES} {_TRIGGERS} PRAGMA user_version={VERSION}; COMMIT;")
    connection.execute("INSERT INTO meta VALUES ('store', ?)", (store_url,))
