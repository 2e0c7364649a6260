"""Removing entries, pins and garbage collection, on every kind of store."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from cache_kit import eventually, open_cache, parts, unprivileged

from cache_server import NeffCache
from cache_server.administration.collection import HOUR, WEEK, Policy, choose, plan_collection
from cache_server.administration.pins import is_pinned, pin, unpin
from cache_server.administration.removal import Kind, Plan, carry_out, plan_entries
from cache_server.administration.snapshot import Snapshot, take_snapshot
from cache_server.errors import StoreError
from cache_server.leases.owner import Owner
from cache_server.leases.record import State, decode_record
from cache_server.manifest import Failure
from cache_server.storage import Storage
from cache_server.store import Store
from neuron_runtime.compiler.errors import CompileFailure, FailureKind

AT_ONCE = Policy(grace=-HOUR)  # what nobody names may go although it was written this moment


@pytest.fixture(params=["file", "memory", "s3"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> NeffCache:
    if request.param == "s3":
        url = request.getfixturevalue("s3_url")
    else:
        url = str(tmp_path / "shared") if request.param == "file" else f"memory://{tmp_path}"
    return open_cache(tmp_path, url=url)


def storage_of(cache: NeffCache) -> Storage:
    assert cache.storage is not None
    return cache.storage


def fill(cache: NeffCache, *irs: str, neff: bytes | None = None) -> list[str]:
    """Compiles graphs, each into 1,000 bytes of its own or all into `neff`; their keys."""
    return [cache.get_or_compile(parts(ir), lambda ir=ir: neff or ir.encode() * 1000, label=ir).key for ir in irs]  # type: ignore[misc]


def elsewhere(cache: NeffCache, tmp_path: Path) -> NeffCache:
    """The same store from a host that has nothing yet."""
    assert cache.settings.url is not None
    return open_cache(tmp_path, os.urandom(4).hex(), url=cache.settings.url)


def remove(cache: NeffCache, *keys: str) -> Plan:
    storage = storage_of(cache)
    snapshot = take_snapshot(storage)
    chosen = [entry for entry in snapshot.within(storage.store.namespace) if entry.key in keys]
    plan = Plan(tuple(plan_entries(snapshot, [(entry, "asked for") for entry in chosen])))
    assert not carry_out(storage, plan).left
    return plan


def collect(cache: NeffCache, policy: Policy = AT_ONCE, *, later: float = 0.0) -> Plan:
    storage = storage_of(cache)
    plan = plan_collection(storage, policy, now=time.time() + later)
    assert not carry_out(storage, plan).left
    return plan


def blobs(cache: NeffCache) -> set[str]:
    return {found.path for found in storage_of(cache).store.backend.scan("blobs")}


def kinds(plan: Plan) -> list[Kind]:
    return [step.kind for step in plan.steps]


def test_a_removed_entry_is_compiled_again_and_not_revived_by_its_lease_record(
    cache: NeffCache, tmp_path: Path
) -> None:
    (key,) = fill(cache, "a")
    remove(cache, key)
    assert blobs(cache) == set()
    again = elsewhere(cache, tmp_path).get_or_compile(parts("a"), lambda: b"new")
    assert (again.outcome, again.neff, again.epoch) == ("compiled", b"new", 2)


def test_removing_frees_the_bytes_of_manifest_and_blobs(cache: NeffCache) -> None:
    key, _ = fill(cache, "a", "b")
    plan = remove(cache, key)
    assert kinds(plan) == [Kind.ENTRY, Kind.BLOB]
    assert 1000 < plan.size < 3000
    assert len(blobs(cache)) == 1


def test_a_blob_that_two_entries_share_stays_until_the_last_one_goes(cache: NeffCache, tmp_path: Path) -> None:
    first, second = fill(cache, "a", "b", neff=b"same bytes")
    assert kinds(remove(cache, first)) == [Kind.ENTRY]
    assert elsewhere(cache, tmp_path).get(parts("b")) is not None
    assert kinds(remove(cache, second)) == [Kind.ENTRY, Kind.BLOB]
    assert blobs(cache) == set()


def test_a_blob_that_another_namespace_names_stays(cache: NeffCache, tmp_path: Path) -> None:
    (key,) = fill(cache, "a", neff=b"same bytes")
    other = open_cache(tmp_path, "b", url=cache.settings.url, namespace="team")
    fill(other, "a", neff=b"same bytes")
    assert kinds(remove(cache, key)) == [Kind.ENTRY]
    assert len(blobs(cache)) == 1
    assert kinds(remove(other, key)) == [Kind.ENTRY, Kind.BLOB]


def test_collecting_one_namespace_leaves_the_entries_of_another(cache: NeffCache, tmp_path: Path) -> None:
    fill(cache, "a", neff=b"same bytes")
    other = open_cache(tmp_path, "b", url=cache.settings.url, namespace="team")
    fill(other, "a", neff=b"same bytes")
    assert kinds(collect(cache, replace(AT_ONCE, older_than=0.0), later=1)) == [Kind.ENTRY]
    assert len(take_snapshot(storage_of(other)).within("team")) == 1
    assert len(blobs(cache)) == 1


def test_an_entry_whose_owner_died_before_listing_it_is_removed_too(cache: NeffCache) -> None:
    (key,) = fill(cache, "a")
    storage = storage_of(cache)
    manifest = storage.store.read_manifest(key)
    assert manifest is not None
    assert storage.store.drop_manifest(manifest)
    assert [entry.found for entry in take_snapshot(storage).entries] == [None]
    remove(cache, key)
    assert take_snapshot(storage).entries == ()


def test_an_entry_published_anew_since_the_plan_stays_with_its_blobs(cache: NeffCache, tmp_path: Path) -> None:
    (key,) = fill(cache, "a")
    storage = storage_of(cache)
    snapshot = take_snapshot(storage)
    plan = Plan(tuple(plan_entries(snapshot, [(snapshot.entries[0], "asked for")])))
    remove(cache, key)
    fill(elsewhere(cache, tmp_path), "a")
    removed = carry_out(storage, plan)
    assert removed.done == ()
    assert len(removed.left) == 2
    assert elsewhere(cache, tmp_path).get(parts("a")) is not None


def test_a_blob_stored_again_since_it_was_seen_stays(cache: NeffCache) -> None:
    store = storage_of(cache).store
    store.put_blob(b"orphan")
    plan = plan_collection(storage_of(cache), AT_ONCE, now=time.time())
    assert kinds(plan) == [Kind.BLOB]
    before = list(store.backend.scan("blobs"))

    def stored_again() -> bool:
        # Where times are whole seconds, a write shows once the second is over.
        store.put_blob(b"orphan")
        return list(store.backend.scan("blobs")) != before

    eventually(stored_again, "a write shows")
    assert len(carry_out(storage_of(cache), plan).left) == 1
    assert len(blobs(cache)) == 1


def test_an_orphan_is_left_until_it_is_older_than_the_grace(cache: NeffCache) -> None:
    storage_of(cache).store.put_blob(b"a publish on its way")
    assert kinds(collect(cache, Policy())) == []
    assert kinds(collect(cache, Policy(), later=2 * HOUR)) == [Kind.BLOB]
    assert blobs(cache) == set()


def test_collecting_to_a_size_takes_the_oldest_and_says_what_oldest_means(cache: NeffCache) -> None:
    keys = fill(cache, "a", "b", "c")
    plan = collect(cache, Policy(max_bytes=2500))
    assert [step.name for step in plan.steps if step.kind is Kind.ENTRY] == keys[:1]
    assert "no last uses" in plan.notes[0]
    assert len(blobs(cache)) == 2


def test_a_pinned_entry_outlives_every_collection_and_can_be_unpinned(cache: NeffCache) -> None:
    keys = fill(cache, "a", "b")
    store = storage_of(cache).store
    assert pin(store, keys[0], Owner.here())
    assert not pin(store, keys[0], Owner.here())
    plan = collect(cache, replace(AT_ONCE, max_bytes=0, older_than=0.0), later=1)
    assert [step.name for step in plan.steps if step.kind is Kind.ENTRY] == keys[1:]
    assert "more than the limit" in plan.notes[-1]
    assert unpin(store, keys[0])
    assert not unpin(store, keys[0])
    assert not is_pinned(store, keys[0])
    assert kinds(collect(cache, replace(AT_ONCE, max_bytes=0), later=1)) == [Kind.ENTRY, Kind.BLOB]


def test_an_entry_pinned_after_the_plan_stays_with_its_blobs(cache: NeffCache, tmp_path: Path) -> None:
    (key,) = fill(cache, "a")
    storage = storage_of(cache)
    plan = plan_collection(storage, replace(AT_ONCE, max_bytes=0), now=time.time() + 1)
    pin(storage.store, key, Owner.here())
    assert carry_out(storage, plan).done == ()
    assert elsewhere(cache, tmp_path).get(parts("a")) is not None


def test_an_expired_failure_goes_and_a_live_one_stays(cache: NeffCache) -> None:
    def broken() -> bytes:
        raise CompileFailure("no such op", kind=FailureKind.COMPILER_ERROR)

    with pytest.raises(CompileFailure):
        cache.get_or_compile(parts("bad"), broken)
    assert kinds(collect(cache)) == []
    assert kinds(collect(cache, later=2 * HOUR)) == [Kind.FAILURE]
    assert take_snapshot(storage_of(cache)).entries == ()


def test_a_lease_record_goes_a_week_after_its_owner_gave_up(cache: NeffCache) -> None:
    (key,) = fill(cache, "a")
    remove(cache, key)
    storage = storage_of(cache)
    seen = storage.records.read(storage.store.record_name(key))
    assert seen is not None
    assert decode_record(seen.data, key=key).state is State.FREE
    assert kinds(collect(cache, later=WEEK / 2)) == []
    assert kinds(collect(cache, later=WEEK + HOUR)) == [Kind.RECORD]
    assert storage.records.read(storage.store.record_name(key)) is None


def test_no_blob_goes_while_a_later_version_may_name_it(cache: NeffCache, tmp_path: Path) -> None:
    key, other = fill(cache, "a", "b")
    store = storage_of(cache).store
    path = f"entries/default/{key[:2]}/{key}.json"
    data = store.backend.read(path, 1 << 20)
    assert data is not None
    store.backend.write(path, data.replace(b'"schema": 1}\n', b'"schema": 2}\n'))
    assert len(take_snapshot(storage_of(cache)).blind) == 1
    store.put_blob(b"orphan, or named by the later version")
    before = blobs(cache)
    plan = collect(cache, replace(AT_ONCE, older_than=0.0), later=1)
    assert [step.name for step in plan.steps] == [other]
    assert "cannot be understood" in plan.notes[-1]
    assert blobs(cache) == before


def test_files_of_dead_writers_and_old_quarantine_go(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    fill(cache, "a")
    store = storage_of(cache).store
    root = tmp_path / "shared" / "neuron-env-cache.v1"
    (root / "staging" / "left-behind").write_bytes(b"x" * 10)
    store.backend.write("quarantine/1-bad", b"y" * 10)
    assert kinds(collect(cache, Policy())) == []
    assert kinds(collect(cache, Policy(), later=2 * HOUR)) == [Kind.STAGED]
    assert kinds(collect(cache, Policy(), later=WEEK + HOUR)) == [Kind.QUARANTINED]
    assert list((root / "staging").iterdir()) == []


def test_a_directory_that_cannot_be_listed_ends_the_collection(public: Path) -> None:
    with unprivileged():
        cache = open_cache(public)
        fill(cache, "a")
        closed = public / "shared" / "neuron-env-cache.v1" / "entries" / "default"
        closed.chmod(0)
        with pytest.raises(StoreError, match="entries/default"):
            plan_collection(storage_of(cache), replace(AT_ONCE, older_than=0.0), now=time.time() + 1)


def test_deciding_needs_no_store(cache: NeffCache) -> None:
    fill(cache, "a")
    entry = take_snapshot(storage_of(cache)).entries[0]
    failure = Failure(FailureKind.COMPILER_ERROR, "text", expires_at=100.0)
    failed = replace(entry, manifest=replace(entry.manifest, failure=failure, files={}), record=None)
    assert choose(Snapshot((failed,)), "default", Policy(), now=99.0).steps == ()
    assert kinds(choose(Snapshot((failed,)), "default", Policy(), now=101.0)) == [Kind.FAILURE]
    assert choose(Snapshot((failed,)), "team", Policy(), now=101.0).steps == ()


def test_a_blob_named_only_by_a_lease_record_is_no_orphan(cache: NeffCache, tmp_path: Path) -> None:
    (key,) = fill(cache, "a")
    store: Store = storage_of(cache).store
    manifest = store.read_manifest(key)
    assert manifest is not None
    store.drop_manifest(manifest)
    assert kinds(collect(cache, later=2 * HOUR)) == []
    assert elsewhere(cache, tmp_path).get_or_compile(parts("a"), lambda: b"").outcome == "shared_hit"
