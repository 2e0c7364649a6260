"""Checking and mending a store, and judging and freeing its leases."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cache_kit import Fleet, eventually, open_cache, parts, unprivileged

from cache_server import NeffCache
from cache_server.administration.fsck import Fault, Problem, check, repair
from cache_server.administration.listing import Filter, resolve, select
from cache_server.administration.locks import Hold, Life, free, held_leases, watch
from cache_server.administration.pins import pin
from cache_server.administration.snapshot import take_snapshot
from cache_server.administration.status import local_usage, store_status
from cache_server.errors import CacheError, LeaseLostError
from cache_server.leases import Lease, Vacant
from cache_server.leases.owner import Owner
from cache_server.storage import Storage

NEFF = b"neff" * 100
ELSEWHERE = Owner("another-host", 1, "somebody")


@pytest.fixture
def cache(tmp_path: Path) -> NeffCache:
    cache = open_cache(tmp_path)
    cache.get_or_compile(parts(), lambda: NEFF, label="the graph")
    return cache


def storage_of(cache: NeffCache) -> Storage:
    assert cache.storage is not None
    return cache.storage


def only(directory: Path) -> Path:
    (path,) = (path for path in directory.rglob("*") if path.is_file())
    return path


def check_now(cache: NeffCache, **options: object) -> list[Problem]:
    return check(storage_of(cache), now=time.time(), **{"grace": -3600.0, **options})  # type: ignore[arg-type]


def damage(act: Callable[[Path], None], tmp_path: Path, where: str) -> Path:
    path = only(tmp_path / "shared" / "neuron-env-cache.v1" / where)
    act(path)
    return path


def flip(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])


def hold(cache: NeffCache, ir: str, owner: Owner, seconds: float = 15.0) -> Lease:
    storage = storage_of(cache)
    name = storage.store.record_name(parts(ir).key)
    return Lease.claim(storage.records, name, Vacant(0, None), owner=owner, lease_seconds=seconds)


class Clock:
    """Time that passes only while somebody pauses."""

    def __init__(self) -> None:
        self.now = 100.0
        self.on_pause: Callable[[], None] = lambda: None

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds
        self.on_pause()


def state(path: Path) -> tuple[int, int, int, bytes] | None:
    """What a check must not change; reading moves the access time, so that is no part of it."""
    if not path.exists():
        return None
    found = path.stat()
    return found.st_mode, found.st_ino, found.st_mtime_ns, path.read_bytes()


@pytest.mark.parametrize(
    ("act", "where", "fault"),
    [
        (Path.unlink, "blobs", Fault.MISSING_BLOB),
        (flip, "blobs", Fault.DAMAGED_BLOB),
        (lambda path: path.write_bytes(b""), "blobs", Fault.DAMAGED_BLOB),
        (lambda path: path.write_bytes(b""), "entries", Fault.EMPTY_FILE),
        (flip, "entries", Fault.DAMAGED_MANIFEST),
        (lambda path: path.chmod(0o600), "blobs", Fault.CLOSED_MODE),
        (lambda path: path.chmod(0o600), "entries", Fault.CLOSED_MODE),
    ],
    ids=["missing-blob", "bit-flip", "truncated", "empty-manifest", "bad-manifest", "closed-blob", "closed-manifest"],
)
def test_fsck_finds_what_is_wrong_and_mends_it(
    cache: NeffCache, tmp_path: Path, act: Callable[[Path], None], where: str, fault: Fault
) -> None:
    assert check_now(cache) == []
    path = damage(act, tmp_path, where)
    before = state(path)
    (problem,) = check_now(cache)
    assert problem.fault is fault
    assert state(path) == before, "a check changes nothing"
    assert repair(storage_of(cache), problem, Owner.here())
    assert check_now(cache) == []
    mended = open_cache(tmp_path, "b").get_or_compile(parts(), lambda: NEFF)
    assert mended.neff == NEFF
    assert check_now(cache) == []


def test_a_short_blob_shows_without_reading_and_a_flipped_bit_does_not(cache: NeffCache, tmp_path: Path) -> None:
    damage(flip, tmp_path, "blobs")
    assert check_now(cache, contents=False) == []
    damage(lambda path: path.write_bytes(b"short"), tmp_path, "blobs")
    assert [it.fault for it in check_now(cache, contents=False)] == [Fault.DAMAGED_BLOB]


def test_a_damaged_entry_is_mended_even_if_pinned(cache: NeffCache, tmp_path: Path) -> None:
    pin(storage_of(cache).store, parts().key, Owner.here())
    damage(Path.unlink, tmp_path, "blobs")
    (problem,) = check_now(cache)
    assert repair(storage_of(cache), problem, Owner.here())
    assert check_now(cache) == []


def test_a_blob_that_came_back_before_the_repair_saves_the_entry(cache: NeffCache, tmp_path: Path) -> None:
    damage(Path.unlink, tmp_path, "blobs")
    (problem,) = check_now(cache)
    storage_of(cache).store.put_blob(NEFF)
    assert repair(storage_of(cache), problem, Owner.here())
    assert cache.peek(parts()) is not None


def test_an_orphan_is_a_problem_once_it_is_no_publish_on_its_way(cache: NeffCache) -> None:
    storage_of(cache).store.put_blob(b"orphan")
    assert check_now(cache, grace=3600.0) == []
    (problem,) = check_now(cache)
    assert (problem.fault, problem.name) == (Fault.ORPHAN_BLOB, hashlib.sha256(b"orphan").hexdigest())
    assert repair(storage_of(cache), problem, Owner.here())
    assert check_now(cache) == []


def test_what_this_user_cannot_read_is_a_problem_that_stays(public: Path) -> None:
    with unprivileged():
        cache = open_cache(public)
        cache.get_or_compile(parts(), lambda: NEFF)
        damage(lambda path: path.chmod(0), public, "entries")
        (problem,) = check_now(cache)
        assert problem.fault is Fault.UNREADABLE
        assert "Permission denied" in problem.detail
        assert not repair(storage_of(cache), problem, Owner.here())
        assert check_now(cache) == [problem]


def test_a_manifest_of_a_later_version_is_no_problem_and_its_blob_no_orphan(cache: NeffCache, tmp_path: Path) -> None:
    record = storage_of(cache).records
    name = storage_of(cache).store.record_name(parts().key)
    seen = record.read(name)
    assert seen is not None
    record.delete_if(name, seen.version)
    damage(
        lambda path: path.write_bytes(path.read_bytes().replace(b'"schema": 1}\n', b'"schema": 2}\n')),
        tmp_path,
        "entries",
    )
    assert check_now(cache) == []


def test_a_dead_neighbour_is_a_stale_lease_and_its_key_is_free_after_the_repair(fleet: Fleet) -> None:
    owner = fleet.start("a", dies_at="mid-compile", real_host=True, lease=60.0)
    fleet.go(owner)
    owner.wait(timeout=30)
    cache = open_cache(fleet.tmp)
    (problem,) = check_now(cache)
    assert problem.fault is Fault.STALE_LEASE
    assert f"pid {owner.pid}" in problem.detail
    assert repair(storage_of(cache), problem, Owner.here())
    assert held_leases(storage_of(cache)) == []
    after = fleet.run("b", lease=60.0)
    assert (after["outcome"], after["epoch"], after["took_over"]) == ("compiled", 2, False)


def test_a_record_that_cannot_be_understood_is_found_after_a_lease_and_removed(
    cache: NeffCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cache_server.administration import locks

    storage = storage_of(cache)
    name = storage.store.record_name(parts("other").key)
    storage.records.create_exclusive(name, b"not json")
    monkeypatch.setattr(locks, "_UNREADABLE_LEASE", 0.2)
    (problem,) = check_now(cache)
    assert problem.fault is Fault.DAMAGED_RECORD
    assert repair(storage, problem, Owner.here())
    assert storage.records.read(name) is None


def test_locks_tell_a_live_neighbour_a_dead_one_and_a_stranger_apart(fleet: Fleet) -> None:
    dead = fleet.start("a", dies_at="mid-compile", real_host=True, ir="dead")
    alive = fleet.start("a", seconds=60.0, real_host=True, ir="alive")
    stranger = fleet.start("c", seconds=60.0, ir="stranger")
    fleet.go(dead, alive, stranger)
    dead.wait(timeout=30)
    storage = storage_of(open_cache(fleet.tmp))
    eventually(lambda: len(held_leases(storage)) == 3 and fleet.compiles == 3, "all three compile")
    assert {hold.seen.key: hold.life for hold in held_leases(storage)} == {
        parts("dead").key: Life.DEAD,
        parts("alive").key: Life.ALIVE,
        parts("stranger").key: Life.UNKNOWN,
    }
    decided = {hold.seen.key: hold.life for hold in watch(storage.records, held_leases(storage))}
    assert decided[parts("stranger").key] is Life.ALIVE


def test_a_silent_stranger_is_dead_after_its_lease_and_not_before(cache: NeffCache) -> None:
    hold(cache, "other", ELSEWHERE, seconds=15.0)
    storage, clock = storage_of(cache), Clock()
    (decided,) = watch(storage.records, held_leases(storage), clock=clock, pause=clock.pause)
    assert decided.life is Life.DEAD
    assert 15.0 <= clock.now - 100.0 < 16.0


def test_a_stranger_that_renews_is_alive_and_one_that_ends_is_left_out(cache: NeffCache) -> None:
    renewing, ending = hold(cache, "renewing", ELSEWHERE), hold(cache, "ending", ELSEWHERE)
    storage, clock = storage_of(cache), Clock()

    def on_pause() -> None:
        renewing.renew()
        ending.release()

    clock.on_pause = on_pause
    (decided,) = watch(storage.records, held_leases(storage), clock=clock, pause=clock.pause)
    assert (decided.seen.key, decided.life) == (parts("renewing").key, Life.ALIVE)


def test_an_owner_whose_lease_was_freed_is_fenced(cache: NeffCache) -> None:
    lease = hold(cache, "other", ELSEWHERE)
    storage = storage_of(cache)
    (held,) = held_leases(storage)
    assert free(storage, held, Owner.here())
    manifest = storage.store.read_manifest(parts().key)
    assert manifest is not None
    with pytest.raises(LeaseLostError):
        lease.publish(replace(manifest, parts=parts("other")))
    after = cache.get_or_compile(parts("other"), lambda: b"later")
    assert (after.outcome, after.epoch) == ("compiled", 2)


def test_a_lease_renewed_since_it_was_looked_at_is_not_freed(cache: NeffCache) -> None:
    lease = hold(cache, "other", ELSEWHERE)
    storage = storage_of(cache)
    (held,) = held_leases(storage)
    lease.renew()
    assert not free(storage, held, Owner.here())
    assert isinstance(held_leases(storage)[0], Hold)
    lease.renew()


def test_status_counts_entries_failures_and_compiles_and_proves_the_leases(cache: NeffCache, tmp_path: Path) -> None:
    hold(cache, "other", ELSEWHERE)
    for details in (False, True):
        found = store_status(storage_of(cache), now=time.time(), details=details)
        assert (found.leases, found.entries, len(found.holds)) == ("on", 1, 1)
        assert found.blobs is not None
        assert found.blobs.size == len(NEFF)
    assert found.details is not None
    assert (found.details.neffs.count, found.details.neffs.size, found.details.failures) == (1, len(NEFF), 0)
    usage = local_usage(tmp_path / "local-a")
    assert (usage.count, usage.size) == (1, len(NEFF))
    assert local_usage(tmp_path / "nowhere").count == 0


def test_status_reads_neither_manifests_nor_old_lease_records(
    cache: NeffCache, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    storage, now = storage_of(cache), time.time()
    for record in (tmp_path / "shared").rglob("leases/*/*/*/*"):
        os.utime(record, (now - 10_000, now - 10_000))
    hold(cache, "other", ELSEWHERE)
    read: list[str] = []
    backend, reading = storage.store.backend, storage.store.backend.read

    def counted(path: str, limit: int) -> bytes | None:
        read.append(path)
        return reading(path, limit)

    monkeypatch.setattr(backend, "read", counted)
    found = store_status(storage, now=now)
    assert (found.entries, [it.seen.key for it in found.holds]) == (1, [parts("other").key])
    assert not [path for path in read if path.startswith("entries/") or parts().key in path]


def test_status_of_a_place_where_nothing_is_does_not_create_it(tmp_path: Path) -> None:
    found = store_status(storage_of(open_cache(tmp_path / "typo")), now=0.0)
    assert (found.leases, found.entries) == ("unproven", 0)
    assert not (tmp_path / "typo").exists()


def test_status_names_a_store_that_does_not_exclude(cache: NeffCache, monkeypatch: pytest.MonkeyPatch) -> None:
    records = storage_of(cache).records
    monkeypatch.setattr(records, "create_exclusive", lambda name, data: "1")
    found = store_status(storage_of(cache), now=time.time())
    assert found.leases == "off"
    assert "does not exclude" in found.verdict


def test_entries_are_filtered_sorted_and_cut(cache: NeffCache) -> None:
    cache.get_or_compile(parts("big"), lambda: b"x" * 5000, label="big one")
    entries = list(take_snapshot(storage_of(cache)).entries)
    now = time.time()
    by_size = select(entries, Filter(), now=now, sort="size")
    assert [entry.manifest.label for entry in by_size] == ["big one", "the graph"]
    assert select(entries, Filter(), now=now, sort="size", limit=1) == by_size[:1]
    assert select(entries, Filter(), now=now, sort="age") == by_size
    assert select(entries, Filter(label="big"), now=now) == by_size[:1]
    assert select(entries, Filter(larger_than=5000), now=now) == []
    assert select(entries, Filter(older_than=3600.0), now=now) == []
    assert select(entries, Filter(older_than=3600.0), now=now + 7200) == by_size
    assert select(entries, Filter(kind="failure"), now=now) == []
    assert len(select(entries, Filter(kind="neff"), now=now, sort="saved")) == 2


def test_the_beginning_of_a_key_must_be_a_key_s_exist_and_be_unambiguous() -> None:
    keys = ["abcd" + "0" * 60, "abce" + "0" * 60]
    assert resolve("ABCD", keys) == keys[0]
    assert resolve(keys[1], keys) == keys[1]
    for text, message in [
        ("abc", "not a key"),
        ("../../etc", "not a key"),
        ("a" * 65, "not a key"),
        ("ffff", "no entry whose key begins with ffff"),
    ]:
        with pytest.raises(CacheError, match=message):
            resolve(text, keys)
    with pytest.raises(CacheError, match="2 keys begin with abcd"):
        resolve("abcd", ["abcd" + "0" * 60, "abcd" + "1" * 60])
