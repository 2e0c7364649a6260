"""One compile for a fleet, with real processes, kill -9 and SIGSTOP."""

from __future__ import annotations

import os
import signal

import pytest
from cache_kit import Fleet, eventually, open_cache, parts, stopped

pytestmark = pytest.mark.fleet

LEASE = 0.8
MARGIN = 5.0  # for a busy machine; the point is that nothing waits for a compile's length or for ever

BEFORE_PUBLISHING = [
    "acquired",
    "compiling",
    "mid-compile",
    "storing",
    "staged:blobs/",
    "publishing",
    "staged:leases/default#2",
]
AFTER_PUBLISHING = ["published", "staged:entries/", "listed"]


@pytest.mark.parametrize("hosts", [1, 16], ids=["one-host", "sixteen-hosts"])
def test_sixteen_processes_compile_a_cold_key_once(fleet: Fleet, hosts: int) -> None:
    children = [fleet.start(f"h{number % hosts}", seconds=0.5, lease=15.0) for number in range(16)]
    fleet.go(*children)
    results = [fleet.result(child) for child in children]
    assert fleet.compiles == 1
    assert len({result["sha256"] for result in results}) == 1
    outcomes = [result["outcome"] for result in results]
    assert outcomes.count("compiled") == 1
    assert set(outcomes) <= {"compiled", "local_hit", "shared_hit"}


def test_waiters_see_who_compiles_and_how_far_it_is(fleet: Fleet) -> None:
    late = fleet.start("b")  # before the owner, so that it is up while the owner compiles
    owner = fleet.start("a", seconds=2.0, lease=15.0)
    fleet.go(owner)
    eventually(lambda: fleet.compiles, "the owner compiles")
    fleet.go(late)
    waiter = fleet.result(late)
    assert waiter["outcome"] == "shared_hit"
    assert waiter["waited"] > 0
    assert waiter["waited_for"] == f"pid {owner.pid} on a (user tester)"
    assert waiter["progress"][0]["owner"] == waiter["waited_for"]


@pytest.mark.parametrize("step", BEFORE_PUBLISHING)
def test_owner_killed_before_publishing_is_taken_over(fleet: Fleet, step: str) -> None:
    owner = fleet.start("a", dies_at=step)
    fleet.go(owner)
    assert owner.wait(timeout=MARGIN * 2) == -signal.SIGKILL
    survivor = fleet.run("b")
    assert survivor["outcome"] == "compiled"
    assert survivor["took_over"]
    assert survivor["epoch"] == 2
    assert survivor["took"] < LEASE + MARGIN
    later = fleet.run("c")
    assert (later["outcome"], later["sha256"]) == ("shared_hit", survivor["sha256"])


@pytest.mark.parametrize("step", AFTER_PUBLISHING)
def test_owner_killed_after_publishing_loses_nothing(fleet: Fleet, step: str) -> None:
    owner = fleet.start("a", dies_at=step)
    fleet.go(owner)
    assert owner.wait(timeout=MARGIN * 2) == -signal.SIGKILL
    survivor = fleet.run("b")
    assert survivor["outcome"] == "shared_hit"
    assert fleet.compiles == 1
    assert open_cache(fleet.tmp).peek(parts()) is not None


def test_waiters_outlive_an_owner_killed_mid_compile(fleet: Fleet) -> None:
    owner = fleet.start("a", dies_at="mid-compile", seconds=1.0)
    waiters = [fleet.start(host) for host in "bcd"]
    fleet.go(owner)
    eventually(lambda: fleet.compiles, "the owner compiles")
    fleet.go(*waiters)
    results = [fleet.result(waiter) for waiter in waiters]
    assert fleet.compiles == 2
    assert len({result["sha256"] for result in results}) == 1
    assert [result["took_over"] for result in results].count(True) == 1


def test_neighbour_of_a_dead_owner_does_not_wait_for_the_lease(fleet: Fleet) -> None:
    owner = fleet.start("a", dies_at="compiling", lease=600.0, real_host=True)
    fleet.go(owner)
    owner.wait(timeout=MARGIN * 2)
    survivor = fleet.run("b", lease=600.0, real_host=True)
    assert survivor["took_over"]
    assert survivor["took"] < MARGIN


@pytest.mark.parametrize("step", ["mid-compile", "publishing"])
def test_owner_stopped_past_its_lease_cannot_publish(fleet: Fleet, step: str) -> None:
    owner = fleet.start("a", stops_at=step)
    fleet.go(owner)
    eventually(lambda: stopped(owner), "the owner stops")
    successor = fleet.run("b")
    assert (successor["outcome"], successor["epoch"]) == ("compiled", 2)
    os.kill(owner.pid, signal.SIGCONT)
    late = fleet.result(owner)
    assert late["outcome"] == "compiled_uncached"
    assert "on b" in late["reason"]
    assert late["stats"]["fenced"] == 1
    manifest = open_cache(fleet.tmp).peek(parts())
    assert manifest is not None
    assert manifest.files["module.neff"].sha256 == successor["sha256"]
    assert manifest.epoch == 2


def test_stopped_owner_is_fenced_while_its_successor_still_compiles(fleet: Fleet) -> None:
    owner = fleet.start("a", stops_at="publishing")
    fleet.go(owner)
    eventually(lambda: stopped(owner), "the owner stops")
    successor = fleet.start("b", seconds=2.0)
    fleet.go(successor)
    eventually(lambda: fleet.compiles == 2, "the successor compiles")
    os.kill(owner.pid, signal.SIGCONT)
    assert fleet.result(owner)["outcome"] == "compiled_uncached"
    assert open_cache(fleet.tmp).peek(parts()) is None
    assert fleet.result(successor)["outcome"] == "compiled"


def test_waiter_of_an_owner_that_takes_too_long_compiles_for_itself(fleet: Fleet) -> None:
    owner = fleet.start("a", seconds=3.0)
    fleet.go(owner)
    eventually(lambda: fleet.compiles, "the owner compiles")
    waiter = fleet.run("b", wait=0.3)
    assert waiter["outcome"] == "compiled_uncached"
    assert "still at work" in waiter["reason"]
    assert waiter["took"] < 0.3 + MARGIN
    assert owner.poll() is None, "the owner was to be busy all the while"
    owner.kill()


def test_interrupted_owner_frees_the_key(fleet: Fleet) -> None:
    owner = fleet.start("a", seconds=60.0, lease=600.0)
    fleet.go(owner)
    eventually(lambda: fleet.compiles, "the owner compiles")
    owner.send_signal(signal.SIGINT)
    assert owner.wait(timeout=MARGIN * 2) != 0
    survivor = fleet.run("b", lease=600.0)
    assert (survivor["outcome"], survivor["took_over"]) == ("compiled", False)
    assert survivor["took"] < MARGIN


def test_damaged_blob_is_compiled_again_once_for_all(fleet: Fleet) -> None:
    fleet.run("a")
    [blob] = (fleet.tmp / "shared").glob("*/blobs/sha256/*/*")
    blob.write_bytes(blob.read_bytes()[:-1] + b"\0")
    children = [fleet.start(host, seconds=0.3, lease=15.0) for host in "bcdef"]
    fleet.go(*children)
    results = [fleet.result(child) for child in children]
    assert fleet.compiles == 2
    assert len({result["sha256"] for result in results}) == 1
    assert sum(result["stats"]["quarantined"] for result in results) >= 1
    assert list((fleet.tmp / "shared").glob("*/quarantine/*"))
