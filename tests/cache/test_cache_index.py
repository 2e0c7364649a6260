"""The index: what it knows, that it never is in the way, and that it comes back from anything."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from pathlib import Path

import pytest
from cache_kit import eventually, parts
from space_kit import keeper

from cache_server.administration.pins import pin
from cache_server.backends import Found
from cache_server.errors import CacheError
from cache_server.leases.owner import Owner
from cache_server.manifest import Blob, Failure
from cache_server.service.index import EntryRow, Index, Scanner
from cache_server.store import LAYOUT, Store, blob_path
from neuron_runtime.compiler.errors import FailureKind

MANY = 100_000


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index(tmp_path / "state", "file:///store")


def digest(number: int, what: str = "") -> str:
    return hashlib.sha256(f"{what}{number}".encode()).hexdigest()


def row(number: int, *, namespace: str = "default", blob: Blob | None = None, label: str = "") -> EntryRow:
    blob = blob or Blob(digest(number, "blob"), 1000 + number)
    at = float(number)
    return EntryRow(
        namespace, digest(number), "neff", 10, at, at, frozenset({blob}), label=label, compile_seconds=float(number % 7)
    )


def found(blob: Blob, version: str = "1") -> Found:
    return Found(blob_path(blob.sha256), blob.size, 100.0, version)


def test_totals_count_a_blob_once_a_namespace_and_once_in_all(index: Index) -> None:
    shared = Blob(digest(0, "shared"), 500)
    index.put_blob(found(shared), created=True)
    for number, namespace in enumerate(("a", "a", "b")):
        index.put_entry(row(number, namespace=namespace, blob=shared))
    index.flush()
    assert index.stock.bytes == 500 + 3 * 10
    assert (index.stock.of("a").bytes, index.stock.of("b").bytes) == (520, 510)
    index.remove_entry("a", digest(0))
    index.flush()
    assert index.stock.of("a").bytes == 510
    index.remove_entry("a", digest(1))
    index.remove_entry("b", digest(2))
    index.remove_blob(shared.sha256)
    index.flush()
    assert (index.stock.bytes, index.stock.blobs, index.stock.of("a").bytes) == (0, 0, 0)
    index.close()


def test_an_entry_stored_again_replaces_what_it_named(index: Index) -> None:
    index.put_entry(row(1, blob=Blob(digest(1, "x"), 100)))
    index.put_entry(row(1, blob=Blob(digest(2, "x"), 300)))
    index.flush()
    assert index.stock.of("default").bytes == 310
    assert index.users(digest(1, "x")) == 0
    assert index.users(digest(2, "x")) == 1
    index.close()


def test_uses_are_kept_when_an_entry_is_seen_again(index: Index) -> None:
    index.put_entry(row(1))
    index.use("default", digest(1), 50.0)
    index.use("default", digest(1), 40.0)
    index.flush()
    index.put_entry(row(1))
    index.flush()
    known = index.entry("default", digest(1))
    assert known is not None
    assert (known.used_at, known.uses) == (50.0, 2)
    index.close()


@pytest.mark.parametrize("sort", ["created", "used", "size", "saved"])
def test_pages_of_a_listing_join_without_gap_or_repetition(index: Index, sort: str) -> None:
    for number in range(25):
        index.put_entry(row(number))
    index.flush()
    listed, cursor = [], None
    while True:
        page, cursor = index.listing("default", limit=7, cursor=cursor, sort=sort)
        listed += page
        if cursor is None:
            break
    values = [
        {"created": it.created_at, "used": it.used_at, "size": it.size, "saved": it.compile_seconds}[sort]
        for it in listed
    ]
    assert len({it.key for it in listed}) == len(listed) == 25
    assert values == sorted(values, reverse=True)
    index.close()


def test_a_cursor_of_another_listing_is_refused(index: Index) -> None:
    index.put_entry(row(1))
    index.put_entry(row(2))
    index.flush()
    _, cursor = index.listing("default", limit=1)
    assert cursor is not None
    for sort, wrong in (("size", cursor), ("created", "x"), ("created", "W10=")):
        with pytest.raises(ValueError, match="cursor"):
            index.listing("default", cursor=wrong, sort=sort)
    index.close()


def test_counters_outlive_the_process(index: Index, tmp_path: Path) -> None:
    index.count("default", hits=2, seconds_saved=1.5)
    index.close()
    again = Index(tmp_path / "state", "file:///store")
    again.count("default", hits=1)
    again.flush()
    assert again.statistics()["counters"] == {"default": {"hits": 3, "seconds_saved": 1.5}}
    assert sum(it["hits"] for it in again.statistics()["history"]) == 3
    again.close()


def test_two_processes_do_not_share_a_directory(index: Index, tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="another process"):
        Index(tmp_path / "state", "file:///store")
    index.close()


def test_the_index_of_another_store_or_version_is_not_used(index: Index, tmp_path: Path) -> None:
    index.put_entry(row(1))
    index.close()
    other = Index(tmp_path / "state", "file:///other")
    assert other.stock.of("default").entries == 0
    other.close()
    connection = sqlite3.connect(tmp_path / "state" / "index.sqlite")
    connection.execute("PRAGMA user_version=99")
    connection.close()
    again = Index(tmp_path / "state", "file:///other")
    again.put_entry(row(2))
    assert again.flush()
    assert again.stock.of("default").entries == 1
    again.close()


@pytest.mark.parametrize("damage", ["no database", "torn", "empty"])
def test_a_damaged_index_is_made_again_from_the_store(tmp_path: Path, damage: str) -> None:
    with keeper(str(tmp_path / "store"), tmp_path / "state") as before:
        for number in range(30):
            before.put(f"graph {number}")
        before.index.flush()
    path = tmp_path / "state" / "index.sqlite"
    data = path.read_bytes()
    path.write_bytes(
        {"no database": b"x" * 5000, "torn": data[:4096] + os.urandom(len(data) - 4096), "empty": b""}[damage]
    )
    with keeper(str(tmp_path / "store"), tmp_path / "state") as after:
        after.collector.scan()
        # What a look at the first pages does not show, reading does; then it is made again, and scanned again.
        if after.index.stock.of("default").entries != 30:
            after.collector.scan()
        assert after.index.stock.of("default").entries == 30
        after.check()


def test_an_index_that_is_thrown_away_while_in_use_is_made_again(tmp_path: Path) -> None:
    with keeper(str(tmp_path / "store"), tmp_path / "state") as one:
        one.put("graph 1")
        one.index.flush()
        for path in (tmp_path / "state").glob("index*"):
            path.unlink()
        made = one.made_anew
        one.put("graph 2")
        eventually(lambda: one.made_anew > made, "the loss is noticed")
        assert not one.index.complete
        one.collector.scan()
        assert one.index.stock.of("default").entries == 2
        one.check()


def test_no_blob_is_taken_for_unused_by_a_scan_during_which_the_index_was_lost(tmp_path: Path) -> None:
    with keeper(str(tmp_path / "store"), tmp_path / "state") as one:
        one.put("graph 1")
        scan = one.index.begin_scan()
        one.index.flush()
        (tmp_path / "state" / "index.sqlite").unlink()
        one.index.scanned_blobs(one.backend.scan("blobs"), scan)
        one.index.end_scan(scan, manifests_complete=True)
        one.index.flush()
        assert not one.index.complete
        assert one.index.orphans(before=time.time() + 1e6, limit=10) == []


def test_a_scan_finds_what_others_did(tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    with keeper(url, tmp_path / "one") as one, keeper(url, tmp_path / "two", name="r2") as two:
        kept, removed = one.put("kept"), one.put("removed")
        failed = one.put("failed", failure=Failure(FailureKind.COMPILER_ERROR, "no such operator", 1e11))
        pin(one.storage.store, kept, Owner.here())
        Store(one.backend, "team").put_manifest(next(it for it in one.storage.store.entries() if it.key == kept))
        one.backend.write("plain/team/ac/ab/abcd", b"12345")
        two.collector.scan()
        assert two.index.stock.namespaces.keys() == {"default", "team"}
        assert (two.index.stock.of("default").entries, two.index.stock.of("default").failures) == (2, 1)
        assert two.index.stock.of("team").plain == 1
        known = two.index.entry("default", kept)
        assert known is not None
        assert known.pinned
        failure = two.index.entry("default", failed)
        assert failure is not None
        assert failure.text == "no such operator"
        assert two.storage.store.drop_manifest(next(it for it in two.storage.store.entries() if it.key == removed))
        one.collector.scan()
        assert one.index.entry("default", removed) is None


def test_a_scan_does_not_bring_back_what_went_while_it_ran(tmp_path: Path) -> None:
    with keeper(str(tmp_path / "store"), tmp_path / "state") as one:
        one.put("a")
        one.index.flush()
        scan = one.index.begin_scan()
        blobs = list(one.backend.scan("blobs"))
        entry = one.index.listing("default")[0][0]
        one.index.remove_entry("default", entry.key)
        one.index.remove_blob(blobs[0].path.rpartition("/")[2])
        one.index.scanned_blobs(blobs, scan)
        one.index.scanned_entries([entry], (), scan)
        one.index.end_scan(scan, manifests_complete=True)
        one.index.flush()
        assert (one.index.stock.blobs, one.index.stock.bytes) == (0, 0)


def test_a_second_scan_reads_no_manifest_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with keeper(str(tmp_path / "store"), tmp_path / "state") as one:
        for number in range(5):
            one.put(f"graph {number}")
        scanner = Scanner(one.storage, one.index)
        assert scanner.run() == 5
        monkeypatch.setattr(one.backend, "read", lambda path, limit: pytest.fail(f"read {path}"))
        assert scanner.run() == 5


def test_a_result_that_only_its_lease_record_has_is_found(tmp_path: Path) -> None:
    from cache_kit import open_cache

    cache = open_cache(tmp_path)
    key = cache.get_or_compile(parts("a"), lambda: b"neff" * 100).key
    assert cache.storage is not None
    manifest = cache.storage.store.read_manifest(key)
    assert manifest is not None
    cache.storage.store.drop_manifest(manifest)
    with keeper(str(tmp_path / "shared"), tmp_path / "state") as one:
        one.collector.scan()
        assert one.index.entry("default", key) is not None
        assert one.index.users(manifest.files["module.neff"].sha256) == 1


def seed(state: Path, store_url: str, count: int) -> None:
    """Fills an index faster than by telling it one entry after the other."""
    Index(state, store_url).close()
    connection = sqlite3.connect(state / "index.sqlite")
    indexes = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql NOT NULL").fetchall()
    for name, _ in indexes:
        connection.execute(f"DROP INDEX {name}")
    numbers = f"WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {count - 1})"
    connection.execute(
        f"{numbers} INSERT INTO blobs SELECT printf('%064x', i * 2654435761 % 4294967296), 1000, 'v', 1, 0, 0 FROM n"
    )
    connection.execute(
        f"{numbers} INSERT INTO entries (namespace, key, kind, size, own, version, created, used, label, saved, host, "
        "text, seen) SELECT 'default', printf('%064x', i), 'neff', 1000 + i % 977, 900, 'v', i, i, "
        "'model ' || (i % 50), "
        "i % 100, 'h', '', 0 FROM n"
    )
    connection.execute(
        f"{numbers} INSERT INTO refs SELECT printf('%064x', i * 2654435761 % 4294967296), 'default', "
        "printf('%064x', i), 1000 FROM n"
    )
    for _, statement in indexes:
        connection.execute(statement)
    connection.commit()
    connection.close()


def test_a_hundred_thousand_entries_open_and_list_at_once(tmp_path: Path) -> None:
    seed(tmp_path / "state", f"file://{tmp_path}/store/{LAYOUT}", MANY)
    begun = time.process_time()
    with keeper(str(tmp_path / "store"), tmp_path / "state") as one:
        opened = time.process_time() - begun
        assert one.index.stock.of("default").entries == MANY
        assert one.index.stock.bytes == MANY * 1900
        times = []
        for options in ({}, {"sort": "size"}, {"sort": "saved", "label": "model 7"}, {"label": "no such"}):
            begun = time.process_time()
            page, _ = one.index.listing("default", **options)  # type: ignore[arg-type]
            times.append(time.process_time() - begun)
            assert len(page) == (0 if options.get("label") == "no such" else 100)
        begun = time.process_time()
        assert len(one.index.coldest(None, (-1.0, ""), 256)) == 256
        times.append(time.process_time() - begun)
    # Some ten milliseconds each, and of this process alone: the machine may be busy.
    assert opened < 0.5
    assert max(times) < 0.5
