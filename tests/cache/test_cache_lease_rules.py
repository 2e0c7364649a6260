"""The lease rules, one by one and in random order, on a fake clock: no waiting, no processes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cache_kit import parts
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from test_cache_manifest import FAILURE, NEFF

from cache_server.errors import ConflictError, LeaseLostError
from cache_server.leases import Held, Lease, Observer, Owner, Settled, Vacant
from cache_server.leases.memory import MemoryRecords
from cache_server.leases.record import LeaseRecord, State, decode_record
from cache_server.manifest import Blob, Manifest

KEY = parts().key
NAME = f"default/{KEY[:2]}/{KEY}"
LEASE = 15.0


class Site:
    """One host: an owner, an observer, and a clock whose zero is its own."""

    def __init__(self, records: MemoryRecords, host: str, clock_offset: float = 0.0) -> None:
        self.records = records
        self.owner = Owner(host, 1, "user")
        self.offset = clock_offset
        self.dead: set[str] = set()
        self.observer = Observer(KEY, default_lease_seconds=LEASE, is_known_dead=lambda owner: owner.host in self.dead)

    def look(self, now: float) -> Vacant | Held | Settled:
        return self.observer.judge(self.records.read(NAME), now + self.offset)

    def claim(self, over: Vacant | Settled, at_least_epoch: int = 1) -> Lease:
        return Lease.claim(
            self.records, NAME, over, owner=self.owner, lease_seconds=LEASE, at_least_epoch=at_least_epoch
        )

    def take(self, now: float) -> Lease:
        verdict = self.look(now)
        assert isinstance(verdict, Vacant)
        return self.claim(verdict)


@pytest.fixture
def records() -> MemoryRecords:
    return MemoryRecords()


def record(records: MemoryRecords) -> LeaseRecord:
    seen = records.read(NAME)
    assert seen is not None
    return decode_record(seen.data, key=KEY)


def manifest(epoch: int, digest: str = "ab") -> Manifest:
    return replace(NEFF, epoch=epoch, files={"module.neff": Blob(digest * 32, 5)})


def test_first_claim_has_epoch_one(records: MemoryRecords) -> None:
    assert Site(records, "a").take(0).epoch == 1
    assert record(records).state is State.HELD


def test_claim_is_at_least_the_epoch_asked_for(records: MemoryRecords) -> None:
    assert Site(records, "a").claim(Vacant(0, None), at_least_epoch=8).epoch == 8


def test_of_two_claims_over_one_version_one_wins(records: MemoryRecords) -> None:
    a, b = Site(records, "a"), Site(records, "b")
    seen_by_a, seen_by_b = a.look(0), b.look(0)
    assert isinstance(seen_by_a, Vacant)
    assert isinstance(seen_by_b, Vacant)
    a.claim(seen_by_a)
    with pytest.raises(ConflictError):
        b.claim(seen_by_b)


def test_held_key_tells_its_owner_phase_and_remaining_time(records: MemoryRecords) -> None:
    Site(records, "a").take(0)
    b = Site(records, "b")
    b.look(100.0)
    verdict = b.look(104.0)
    assert isinstance(verdict, Held)
    assert verdict.record is not None
    assert verdict.record.owner.host == "a"
    assert verdict.record.phase == "acquired"
    assert verdict.unchanged_for == 4.0
    assert verdict.expires_in == 11.0


def test_lease_expires_when_it_was_seen_unchanged_for_its_duration(records: MemoryRecords) -> None:
    Site(records, "a").take(0)
    b = Site(records, "b")
    assert isinstance(b.look(1000.0), Held), "a first look says nothing about age"
    assert isinstance(b.look(1000.0 + LEASE - 0.001), Held)
    verdict = b.look(1000.0 + LEASE)
    assert isinstance(verdict, Vacant)
    assert verdict.expired == Owner("a", 1, "user")
    assert b.claim(verdict).epoch == 2


def test_each_renewal_starts_the_wait_anew(records: MemoryRecords) -> None:
    lease = Site(records, "a").take(0)
    b = Site(records, "b")
    for second in range(0, 60, 10):
        assert isinstance(b.look(second), Held)
        lease.renew()
    assert isinstance(b.look(60), Held)
    assert isinstance(b.look(60 + LEASE), Vacant)


@pytest.mark.parametrize("offset", [-1e6, 0.0, 1e6])
def test_clocks_of_hosts_need_not_agree(records: MemoryRecords, offset: float) -> None:
    Site(records, "a").take(0)
    b = Site(records, "b", clock_offset=offset)
    assert isinstance(b.look(0), Held)
    assert isinstance(b.look(LEASE - 1), Held)
    assert isinstance(b.look(LEASE), Vacant)


def test_duration_is_the_owners_not_the_waiters(records: MemoryRecords) -> None:
    Lease.claim(records, NAME, Vacant(0, None), owner=Owner("a", 1, "u"), lease_seconds=100.0)
    b = Site(records, "b")
    b.look(0)
    assert isinstance(b.look(LEASE + 1), Held)
    assert isinstance(b.look(100.0), Vacant)


def test_owner_known_to_be_dead_is_not_waited_for(records: MemoryRecords) -> None:
    Site(records, "a").take(0)
    b = Site(records, "b")
    b.dead = {"a"}
    verdict = b.look(0)
    assert isinstance(verdict, Vacant)
    assert verdict.expired is not None


def test_released_key_is_vacant_at_once_and_keeps_its_epoch(records: MemoryRecords) -> None:
    Site(records, "a").take(0).release("out_of_memory: killed")
    assert record(records).note == "out_of_memory: killed"
    verdict = Site(records, "b").look(0)
    assert verdict == Vacant(1, verdict.version if isinstance(verdict, Vacant) else None)
    assert Site(records, "b").take(0).epoch == 2


def test_published_key_is_settled_for_good(records: MemoryRecords) -> None:
    Site(records, "a").take(0).publish(manifest(1))
    b = Site(records, "b")
    for now in (0.0, LEASE * 100):
        verdict = b.look(now)
        assert isinstance(verdict, Settled)
        assert verdict.manifest == manifest(1)


def test_failure_can_be_published_too(records: MemoryRecords) -> None:
    Site(records, "a").take(0).publish(FAILURE)
    verdict = Site(records, "b").look(0)
    assert isinstance(verdict, Settled)
    assert verdict.manifest.failure == FAILURE.failure


def test_settled_key_whose_files_are_gone_can_be_claimed_again(records: MemoryRecords) -> None:
    Site(records, "a").take(0).publish(manifest(1))
    b = Site(records, "b")
    verdict = b.look(0)
    assert isinstance(verdict, Settled)
    assert b.claim(verdict).epoch == 2


def test_release_and_renewal_after_publishing_change_nothing(records: MemoryRecords) -> None:
    lease = Site(records, "a").take(0)
    lease.publish(manifest(1))
    before = records.read(NAME)
    lease.release("too late")
    lease.renew()
    assert records.read(NAME) == before


@pytest.mark.parametrize("act", ["renew", "publish", "release"])
@pytest.mark.parametrize("successor", ["compiles", "published", "gave up"])
def test_former_owner_can_do_nothing_after_a_takeover(records: MemoryRecords, act: str, successor: str) -> None:
    old = Site(records, "a").take(0)
    b = Site(records, "b")
    b.look(0)
    new = b.take(LEASE)
    if successor == "published":
        new.publish(manifest(2))
    elif successor == "gave up":
        new.release()
    before = records.read(NAME)
    with pytest.raises(LeaseLostError, match="taken over by pid 1 on b"):
        old.publish(manifest(1, "cd")) if act == "publish" else getattr(old, act)()
    assert old.lost
    assert records.read(NAME) == before


def test_record_that_cannot_be_read_is_given_a_lease_to_change(records: MemoryRecords) -> None:
    records.create_exclusive(NAME, b"garbage")
    a = Site(records, "a")
    verdict = a.look(0)
    assert isinstance(verdict, Held)
    assert verdict.record is None
    verdict = a.look(LEASE)
    assert isinstance(verdict, Vacant)
    assert a.claim(verdict, at_least_epoch=7).epoch == 7


def test_record_that_vanishes_is_vacant(records: MemoryRecords) -> None:
    Site(records, "a").take(0)
    b = Site(records, "b")
    b.look(0)
    records.purge(NAME)
    assert b.look(1) == Vacant(0, None)


def test_phase_travels_with_the_next_renewal(records: MemoryRecords) -> None:
    lease = Site(records, "a").take(0)
    lease.phase = "compiling"
    lease.renew()
    assert (record(records).phase, record(records).beat) == ("compiling", 1)


def test_this_process_lives_and_a_process_of_elsewhere_is_not_judged() -> None:
    here = Owner.here()
    assert here.incarnation
    assert not here.is_known_dead()
    assert replace(here, incarnation=here.incarnation + "0").is_known_dead(), "another start time, another process"
    assert not replace(here, incarnation="another-boot/pid:[1]/1").is_known_dead()
    assert not replace(here, incarnation="").is_known_dead()


class Interleavings(RuleBasedStateMachine):
    """Three hosts with clocks of their own act in any order, stall for any time, and forget their leases."""

    def __init__(self) -> None:
        super().__init__()
        self.records = MemoryRecords()
        self.sites = [Site(self.records, host, offset) for host, offset in (("a", 0.0), ("b", 1e5), ("c", -50.0))]
        self.leases: dict[int, Lease] = {}
        self.beat_at: dict[int, float] = {}
        self.published: dict[int, str] = {}  # epoch -> digest
        self.now = 0.0
        self.highest = 0

    @rule(seconds=st.sampled_from([0.1, 4.0, 14.9, 15.0, 40.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(site=st.integers(0, 2))
    def look_and_claim(self, site: int) -> None:
        verdict = self.sites[site].look(self.now)
        if isinstance(verdict, Vacant):
            for other, lease in self.leases.items():
                if other != site and not lease.lost and verdict.expired is not None:
                    assert self.now - self.beat_at[other] >= LEASE, "taken from an owner that was in time"
            lease = self.sites[site].claim(verdict)
            assert lease.epoch > self.highest
            self.highest = lease.epoch
            self.leases[site], self.beat_at[site] = lease, self.now

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        site = data.draw(st.sampled_from(sorted(self.leases)))
        try:
            self.leases[site].renew()
            self.beat_at[site] = self.now
        except LeaseLostError:
            del self.leases[site]

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), digest=st.sampled_from(["ab", "cd"]))
    def publish(self, data: st.DataObject, digest: str) -> None:
        site = data.draw(st.sampled_from(sorted(self.leases)))
        lease = self.leases.pop(site)
        try:
            lease.publish(manifest(lease.epoch, digest))
        except LeaseLostError:
            assert lease.epoch < self.highest, "only a successor takes the right to publish away"
            return
        assert lease.epoch == self.highest, "a publish by a former owner"
        self.published[lease.epoch] = digest

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), tells=st.booleans())
    def give_up_or_die(self, data: st.DataObject, tells: bool) -> None:
        lease = self.leases.pop(data.draw(st.sampled_from(sorted(self.leases))))
        if tells:
            try:
                lease.release()
            except LeaseLostError:
                assert lease.epoch < self.highest

    @invariant()
    def record_tells_the_last_publish(self) -> None:
        seen = self.records.read(NAME)
        if seen is not None:
            current = decode_record(seen.data, key=KEY)
            assert current.epoch == self.highest
            if current.settled is not None:
                assert current.settled == manifest(current.epoch, self.published[current.epoch])
        assert len(self.published) <= 1, "a settled key was published again"


Interleavings.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestInterleavings = Interleavings.TestCase
