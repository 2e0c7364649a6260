"""Room in the store: promised before it is taken, made by evicting, never at the price of a broken entry."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from pathlib import Path

import pytest
from cache_kit import eventually, parts
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from space_kit import FakeDisk, Keeper, keeper

from cache_server.administration.collection import Policy, plan_collection
from cache_server.administration.pins import pin, unpin
from cache_server.administration.usage import Use, merge_batches, put_batch, read_uses
from cache_server.errors import StoreError
from cache_server.leases.owner import Owner
from cache_server.manifest import Blob, Failure
from cache_server.service.errors import NoSpaceError, QuotaError
from cache_server.service.index.scan import StoppedError
from cache_server.service.space import DiskUse, InFlight, Limits
from cache_server.service.space.collector import Pace
from cache_server.service.space.disk import DirectoryDisk
from cache_server.service.space.election import Election
from cache_server.storage import open_storage
from cache_server.store import Store, blob_path
from neuron_runtime.compiler.errors import FailureKind

MANIFEST = 600  # more than one of these has
BODY = 10_000


def body(name: str, size: int = BODY) -> bytes:
    return (name.encode() * size)[:size]


@pytest.mark.parametrize("store", ["file", "memory", "s3"])
def test_the_least_recently_used_goes_first(tmp_path: Path, store: str, request: pytest.FixtureRequest) -> None:
    if store == "s3":
        url = request.getfixturevalue("s3_url")
    else:
        url = str(tmp_path / "store") if store == "file" else f"memory://{tmp_path}"
    with keeper(url, tmp_path / "state", Limits(capacity=4 * (BODY + MANIFEST))) as one:
        one.collector.scan()
        first, second, third = (one.put(name, body(name)) for name in "abc")
        one.use(first)
        fourth, fifth = one.put("d", body("d")), one.put("e", body("e"))
        assert one.stored() == {first, fourth, fifth} | ({third} & one.stored())
        assert second not in one.stored()
        one.check()
        evicted = one.index.statistics()["recent_evictions"]
        assert evicted[-1]["key"] == second
        assert evicted[-1]["bytes"] > BODY


def test_pinned_entries_stay_and_what_does_not_fit_beside_them_is_refused(tmp_path: Path) -> None:
    with keeper(str(tmp_path / "store"), tmp_path / "state", Limits(capacity=2 * (BODY + MANIFEST))) as one:
        kept = [one.put(name, body(name)) for name in "ab"]
        for key in kept:
            pin(one.storage.store, key, Owner.here())
        one.collector.scan()
        with pytest.raises(NoSpaceError, match="no room for"):
            one.put("c", body("c"))
        assert one.stored() == set(kept)
        unpin(one.storage.store, kept[0])
        one.collector.scan()
        assert one.put("c", body("c")) in one.stored()
        assert one.stored() >= {kept[1]}
        one.check()


def test_a_pin_that_the_index_does_not_know_of_yet_holds(tmp_path: Path) -> None:
    with keeper(str(tmp_path / "store"), tmp_path / "state", Limits(capacity=2 * (BODY + MANIFEST))) as one:
        one.collector.scan()
        pinned, other = (one.put(name, body(name)) for name in "ab")
        pin(one.storage.store, pinned, Owner.here())
        assert one.stored() == {pinned, other}
        new = one.put("c", body("c"))
        assert one.stored() == {pinned, new}


def test_a_namespace_evicts_its_own_for_its_quota(tmp_path: Path) -> None:
    limits = Limits(quota=10**9, quotas={"small": 2 * (BODY + MANIFEST)})
    with keeper(str(tmp_path / "store"), tmp_path / "state", limits) as one:
        one.collector.scan()
        other = one.put("x", body("x"))
        keys = [one.put(name, body(name), namespace="small") for name in "abc"]
        assert one.stored("small") == set(keys[1:])
        assert one.stored() == {other}
        with pytest.raises(QuotaError, match="whole quota"):
            one.put("huge", body("h", 3 * BODY), namespace="small")
        assert one.stored("small") == set(keys[1:])
        one.check()


def test_what_is_larger_than_the_capacity_evicts_nothing(tmp_path: Path) -> None:
    with keeper(str(tmp_path / "store"), tmp_path / "state", Limits(capacity=3 * BODY)) as one:
        key = one.put("a", body("a"))
        with pytest.raises(NoSpaceError, match="whole capacity"):
            one.put("b", body("b", 4 * BODY))
        assert one.stored() == {key}


def test_a_full_disk_is_found_out_before_it_is_full(tmp_path: Path) -> None:
    disk = FakeDisk(DiskUse(total=10**6, free=10**6, block=1))
    with keeper(str(tmp_path / "store"), tmp_path / "state", Limits(keep_free=1000), disk=disk) as one:
        one.collector.scan()
        old = one.put("a", body("a"))
        disk.seen = DiskUse(total=10**6, free=BODY, block=1)
        with pytest.raises(NoSpaceError, match="the disk"):
            one.put("b", body("b"))
        assert old not in one.stored()  # evicted, though that did not help: somebody else fills the disk
        disk.seen = DiskUse(total=10**6, free=BODY + 1001, block=1)
        assert one.put("c", body("c")) in one.stored()


def test_promises_count_before_their_bytes_come_and_end_with_them(tmp_path: Path) -> None:
    with keeper(str(tmp_path / "store"), tmp_path / "state", Limits(capacity=10 * BODY)) as one:
        rooms = [one.space.admit("default", 3 * BODY, "blobs/x") for _ in range(3)]
        with pytest.raises(NoSpaceError):
            one.space.admit("default", 2 * BODY, "blobs/x")
        for room in rooms:
            one.space.give_back(room)
        assert one.space.promised == 0
        one.space.give_back(one.space.admit("default", 10 * BODY, "blobs/x"))


def test_an_object_stored_after_its_request_was_given_up_counts_once(tmp_path: Path) -> None:
    with keeper(str(tmp_path / "store"), tmp_path / "state", Limits(capacity=10 * BODY)) as one:
        others = one.space.admit("default", 3 * BODY, "blobs/x")
        room = one.space.admit("default", BODY, blob_path(hashlib.sha256(body("a")).hexdigest()))
        one.space.give_back(room)
        one.storage.store.put_blob(body("a"))
        room.settle(created=True)
        assert one.index.flush()
        assert (one.index.stock.bytes, one.space.promised) == (BODY, 3 * BODY)
        one.space.give_back(others)


def test_a_failed_upload_leaves_no_promise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with keeper(str(tmp_path / "store"), tmp_path / "state", Limits(capacity=10 * BODY)) as one:

        def broken(*arguments: object) -> None:
            raise StoreError("the mount went away")

        monkeypatch.setattr(one.storage.store, "put_blob", broken)
        with pytest.raises(StoreError):
            one.put("a", body("a"))
        assert one.space.promised == 0


def test_a_blob_that_waits_for_its_entry_is_not_removed(tmp_path: Path) -> None:
    pace = Pace(scan=1e6, share=1e6, collect=1e6, grace=-10.0)
    with keeper(str(tmp_path / "store"), tmp_path / "state", pace=pace) as one:
        blob = one.put_blob(body("a"))
        one.collector.round()
        assert one.storage.store.find_blob(blob.sha256) is not None
        one.publish(parts("a"), [blob])
        one.index.flush()
        one.collector.round()
        one.check()
        assert len(one.stored()) == 1


def test_a_blob_is_either_held_or_removed(tmp_path: Path) -> None:
    flight, blob = InFlight(), Blob("ab" * 32, 10)
    assert flight.begin_removal(blob.sha256)
    assert flight.hold("a", [blob]).going == {blob.sha256}
    flight.end_removal(blob.sha256)
    assert flight.hold("a", [blob], stored=True).stored_here == {blob.sha256}
    assert flight.hold("a", [blob]).stored_here == {blob.sha256}
    assert not flight.begin_removal(blob.sha256)
    assert flight.bytes_of("a") == 10
    flight.named([blob.sha256])
    assert flight.begin_removal(blob.sha256)
    assert flight.bytes_of("a") == 0


def test_a_hold_ends_by_itself(tmp_path: Path) -> None:
    now = [0.0]
    flight, blob = InFlight(clock=lambda: now[0]), Blob("ab" * 32, 10)
    flight.hold("a", [blob])
    now[0] = 4000.0
    assert flight.bytes_of("a") == 0
    assert flight.begin_removal(blob.sha256)


def test_a_blob_that_another_replica_is_about_to_name_stays(tmp_path: Path) -> None:
    pace = Pace(scan=1e6, share=1e6, collect=1e6, grace=-10.0)
    url = str(tmp_path / "store")
    with keeper(url, tmp_path / "one", pace=pace) as one, keeper(url, tmp_path / "two", name="r2", pace=pace) as two:
        one.put("a", body("same"))
        one.index.flush()
        one.collector.scan()
        # The other one renews the blob, as whoever publishes does, and publishes; the first does not know of it.
        blob = next(iter(one.backend.scan("blobs")))
        two.storage.store.touch_blob(blob.path.rpartition("/")[2])
        two.publish(parts("b"), [Blob(blob.path.rpartition("/")[2], blob.size)])
        wanted = [2 * BODY]
        one.evictor.make_room(lambda: wanted.pop() if wanted else 0, "test")
        assert parts("a").key not in one.stored()
        assert one.stored() == {parts("b").key}
        two.collector.scan()
        two.check()


def test_an_entry_replaced_since_it_was_chosen_stays(tmp_path: Path) -> None:
    with keeper(str(tmp_path / "store"), tmp_path / "state") as one:
        key = one.put("a", body("a"))
        one.index.flush()
        manifest = one.storage.store.read_manifest(key)
        assert manifest is not None
        one.storage.store.drop_manifest(manifest)
        one.publish(parts("a"), [one.put_blob(body("b"))])
        one.index.flush()
        with contextlib.suppress(StopIteration):
            old = next(one.evictor.choose(1))
            one.now += 1
            assert old.key == key
        fresh = one.storage.store.read_manifest(key)
        assert fresh is not None
        assert fresh.created_at > manifest.created_at


class SpaceMachine(RuleBasedStateMachine):
    """A space against what it promises: limits kept, pins kept, no entry without its blobs, nobody refused in vain."""

    CAPACITY, QUOTA = 40_000, 25_000

    def __init__(self) -> None:
        super().__init__()
        import tempfile

        self.directory = tempfile.TemporaryDirectory()
        place = Path(self.directory.name)
        limits = Limits(capacity=self.CAPACITY, quotas={"b": self.QUOTA})
        self.one = Keeper(f"memory://{place}", place / "state", limits)
        self.one.collector.scan()
        self.pinned: set[tuple[str, str]] = set()
        self.stored: dict[tuple[str, str], int] = {}
        self.order: list[tuple[str, str]] = []  # the coldest first
        self.rooms: list[object] = []
        self.number = 0

    def teardown(self) -> None:
        self.one.close()
        self.directory.cleanup()

    def present(self) -> set[tuple[str, str]]:
        return {(namespace, key) for namespace in ("a", "b") for key in self.one.stored(namespace)}

    @rule(namespace=st.sampled_from(["a", "b"]), size=st.integers(1, 30_000), shared=st.booleans())
    def put(self, namespace: str, size: int, shared: bool) -> None:
        self.number += 1
        content = body("shared" if shared else f"{self.number}-", size)
        before = self.present()
        try:
            key = self.one.put(f"graph {self.number}", content, namespace=namespace)
        except (NoSpaceError, QuotaError):
            # Only what pins and promises take may be in the way, and what the namespace itself has too much of.
            taken = sum(self.stored[place] + MANIFEST for place in self.pinned) + self.one.space.promised
            limit = self.QUOTA if namespace == "b" else self.CAPACITY
            assert size + taken > limit - 2 * MANIFEST * (1 + len(before))
            return
        self.stored[namespace, key] = size
        self.order.append((namespace, key))

    @rule(data=st.data())
    def use(self, data: st.DataObject) -> None:
        if places := sorted(self.present()):
            place = data.draw(st.sampled_from(places))
            self.one.use(place[1], place[0])
            self.order.remove(place)
            self.order.append(place)

    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        if len(self.pinned) < 2 and (places := sorted(self.present() - self.pinned)):
            namespace, key = data.draw(st.sampled_from(places))
            pin(Store(self.one.backend, namespace), key, Owner.here())
            self.pinned.add((namespace, key))

    @rule(size=st.integers(1, 5_000))
    def promise(self, size: int) -> None:
        if len(self.rooms) < 3:
            with contextlib.suppress(NoSpaceError):
                self.rooms.append(self.one.space.admit("a", size, "blobs/sha256/aa/x"))

    @precondition(lambda self: self.rooms)
    @rule()
    def give_back(self) -> None:
        self.one.space.give_back(self.rooms.pop())  # type: ignore[arg-type]

    @rule()
    def collect(self) -> None:
        self.one.collector.round()

    @invariant()
    def limits_and_pins_hold(self) -> None:
        self.one.check()
        stock = self.one.index.stock
        # Manifests are let in where their blobs were.
        manifests = MANIFEST * (len(self.present()) + 1)
        assert stock.bytes + self.one.space.promised <= self.CAPACITY + manifests
        assert stock.of("b").bytes <= self.QUOTA + manifests
        assert self.pinned <= self.present()

    @invariant()
    def the_coldest_of_a_namespace_went_first(self) -> None:
        present = self.present()
        for namespace in ("a", "b"):
            mine = [place for place in self.order if place[0] == namespace and place not in self.pinned]
            there = [place in present for place in mine]
            assert there == sorted(there), "something went before what was colder"
        self.order = [place for place in self.order if place in present]


TestSpaceMachine = SpaceMachine.TestCase
TestSpaceMachine.settings = settings(
    max_examples=12, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_the_collector_removes_what_was_not_used_for_too_long(tmp_path: Path) -> None:
    limits = Limits(max_age=3600.0, max_ages={"long": 1e12})
    with keeper(str(tmp_path / "store"), tmp_path / "state", limits) as one:
        one.collector.scan()
        old, used, other = one.put("old", body("o")), one.put("used", body("u")), one.put("x", namespace="long")
        one.index.use("default", used, time.time())
        plan = one.collector.round(dry_run=True)
        assert one.stored() == {old, used}
        done = one.collector.round()
        assert one.stored() == {used}
        assert one.stored("long") == {other}
        assert (plan["entries"], plan["freed_bytes"]) == (done["entries"], done["freed_bytes"])
        assert done["namespaces"]["default"]["entries"] == 1
        assert done["freed_bytes"] > BODY
        one.check()


def test_the_collector_removes_failures_that_are_no_longer_remembered(tmp_path: Path) -> None:
    with keeper(str(tmp_path / "store"), tmp_path / "state") as one:
        gone = one.put("a", failure=Failure(FailureKind.COMPILER_ERROR, "bad", time.time() - 1))
        kept = one.put("b", failure=Failure(FailureKind.COMPILER_ERROR, "bad", time.time() + 1000))
        assert gone in one.stored()
        one.collector.round()
        assert one.stored() == {kept}


def test_the_collector_makes_room_before_the_store_is_full(tmp_path: Path) -> None:
    with keeper(str(tmp_path / "store"), tmp_path / "state", Limits(capacity=100_000)) as one:
        one.collector.scan()
        keys = []
        while not one.space.excess():
            keys.append(one.put(f"graph {len(keys)}", body(f"{len(keys)}-", 1500)))
            one.index.flush()
        assert one.stored() == set(keys), "nothing went before that"
        one.collector.round()
        assert one.space.excess() == 0
        assert keys[0] not in one.stored()
        assert one.stored() >= set(keys[len(keys) // 4 :])
        one.check()


def test_last_uses_reach_other_replicas_and_the_command(tmp_path: Path) -> None:
    url = str(tmp_path / "store")
    with keeper(url, tmp_path / "one") as one, keeper(url, tmp_path / "two", name="r2") as two:
        used, unused = one.put("used", body("u")), one.put("unused", body("v"))
        one.now += 10
        one.use(used)
        one.collector.round()
        two.collector.scan()
        known = two.index.entry("default", used)
        assert known is not None
        assert known.used_at == one.now
        assert list(one.backend.scan("usage/new")) == []
        plan = plan_collection(one.storage, Policy(max_bytes=BODY), now=time.time())
        assert [step.name for step in plan.steps if step.kind.value == "entry"] == [unused]
        assert plan.notes == ()


def test_batches_of_uses_are_merged_and_the_forgotten_are_dropped(tmp_path: Path) -> None:
    backend = open_storage(str(tmp_path)).store.backend
    put_batch(backend, "r1", {("a", "k1"): Use(10.0, 2), ("a", "k2"): Use(5.0)})
    put_batch(backend, "r2", {("a", "k1"): Use(20.0), ("b", "k1"): Use(1.0)})
    backend.create("usage/new/r3/later.json", b'{"schema": 2}')
    assert read_uses(backend)["a", "k1"] == Use(20.0, 3)
    merge_batches(backend)
    put_batch(backend, "r1", {("a", "k1"): Use(30.0)})
    fresh = merge_batches(backend, keep=lambda namespace, name: name == "k1")
    assert fresh == {("a", "k1"): Use(30.0)}
    assert read_uses(backend) == {("a", "k1"): Use(30.0, 4), ("a", "k2"): Use(5.0), ("b", "k1"): Use(1.0)}
    assert [found.path for found in backend.scan("usage/new")] == ["usage/new/r3/later.json"]


def test_one_replica_collects_and_another_takes_over_when_it_ends(tmp_path: Path) -> None:
    records = open_storage(str(tmp_path / "store")).records
    first = Election(records, excludes=lambda: True, seconds=0.3)
    second = Election(records, excludes=lambda: True, seconds=0.3)
    first.step()
    second.step()
    assert (first.elected, second.elected) == (True, False)
    # The first one stops to renew, as if it were stopped or cut off; the second waits for the lease's end.
    eventually(lambda: (second.step(), second.elected)[1], "the second takes over")
    first.step()
    assert not first.elected
    first.close()
    second.close()
    third = Election(records, excludes=lambda: True, seconds=1000.0)
    third.step()
    assert third.elected, "one that ends gives the lease back"
    third.close()


def test_where_leases_do_not_work_every_replica_collects(tmp_path: Path) -> None:
    records = open_storage(str(tmp_path / "store")).records
    elections = [Election(records, excludes=lambda: False) for _ in range(2)]
    for election in elections:
        election.step()
        assert election.elected
        election.close()


def test_two_collectors_at_once_break_nothing(tmp_path: Path) -> None:
    url, limits = str(tmp_path / "store"), Limits(capacity=6 * (BODY + MANIFEST))
    with keeper(url, tmp_path / "one", limits) as one, keeper(url, tmp_path / "two", limits, name="r2") as two:
        one.collector.scan()
        for number in range(12):
            one.put(f"graph {number}", body(f"{number}-"))
        errors: list[BaseException] = []

        def collect(keeper: Keeper) -> None:
            try:
                for _ in range(3):
                    keeper.collector.round()
            except BaseException as error:  # noqa: BLE001  for the test to see
                errors.append(error)

        threads = [threading.Thread(target=collect, args=(it,)) for it in (one, two)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        one.collector.scan()
        one.check()
        assert len(one.stored()) >= 4


def test_a_scan_ends_with_the_service(tmp_path: Path) -> None:
    with keeper(str(tmp_path / "store"), tmp_path / "state") as one:
        one.put("a")
        one.collector.close()
        with pytest.raises(StoppedError):
            one.collector.scan()


def test_the_disk_of_a_store_that_is_not_there_yet(tmp_path: Path) -> None:
    use = DirectoryDisk(tmp_path / "not" / "yet").use()
    assert use is not None
    assert use.total > use.free > 0
    (tmp_path / "staging").mkdir()
    (tmp_path / "staging" / "x").write_bytes(b"x" * 50_000)
    seen = DirectoryDisk(tmp_path).use()
    assert seen is not None
    assert seen.unfinished >= 50_000
