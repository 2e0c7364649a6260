"""One compile for a fleet that shares a cache service, with real processes, kill -9 and SIGSTOP."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from cache_kit import Fleet, eventually, stopped
from service_kit import Service

pytestmark = pytest.mark.fleet

LEASE = 0.8
MARGIN = 20.0  # for a busy machine; the point is that nothing waits for a compile's length or for ever


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path / "store", tmp_path / "log")
    yield service
    service.close()


@pytest.fixture
def remote(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    monkeypatch.setenv("NEURON_ENV_CACHE_HTTP_TIMEOUT", "30")
    fleet = Fleet(tmp_path, service.url)
    yield fleet
    fleet.stop()


@pytest.mark.parametrize("hosts", [1, 16], ids=["one-host", "sixteen-hosts"])
def test_sixteen_clients_compile_a_cold_key_once(remote: Fleet, hosts: int) -> None:
    children = [remote.start(f"h{number % hosts}", seconds=0.5, lease=30.0) for number in range(16)]
    remote.go(*children)
    results = [remote.result(child) for child in children]
    assert remote.compiles == 1
    assert len({result["sha256"] for result in results}) == 1
    assert [result["outcome"] for result in results].count("compiled") == 1


def test_waiting_client_sees_who_compiles(remote: Fleet) -> None:
    late = remote.start("b")
    owner = remote.start("a", seconds=3.0, lease=30.0)
    remote.go(owner)
    eventually(lambda: remote.compiles, "the owner compiles")
    remote.go(late)
    waiter = remote.result(late)
    assert waiter["outcome"] == "shared_hit"
    assert waiter["waited_for"] == f"pid {owner.pid} on a (user tester)"
    assert waiter["progress"][0]["owner"] == waiter["waited_for"]


@pytest.mark.parametrize("step", ["acquired", "mid-compile", "storing", "publishing"])
def test_client_killed_before_publishing_is_taken_over(remote: Fleet, step: str) -> None:
    owner = remote.start("a", dies_at=step)
    remote.go(owner)
    assert owner.wait(timeout=MARGIN) == -signal.SIGKILL
    survivor = remote.run("b")
    assert (survivor["outcome"], survivor["took_over"], survivor["epoch"]) == ("compiled", True, 2)
    assert survivor["took"] < LEASE + MARGIN
    later = remote.run("c")
    assert (later["outcome"], later["sha256"]) == ("shared_hit", survivor["sha256"])


@pytest.mark.parametrize("step", ["published", "listed"])
def test_client_killed_after_publishing_loses_nothing(remote: Fleet, step: str) -> None:
    owner = remote.start("a", dies_at=step)
    remote.go(owner)
    assert owner.wait(timeout=MARGIN) == -signal.SIGKILL
    assert remote.run("b")["outcome"] == "shared_hit"
    assert remote.compiles == 1


@pytest.mark.parametrize("step", ["mid-compile", "publishing"])
def test_client_stopped_past_its_lease_cannot_publish(remote: Fleet, step: str) -> None:
    owner = remote.start("a", stops_at=step)
    remote.go(owner)
    eventually(lambda: stopped(owner), "the owner stops")
    successor = remote.run("b")
    assert (successor["outcome"], successor["epoch"]) == ("compiled", 2)
    os.kill(owner.pid, signal.SIGCONT)
    late = remote.result(owner)
    assert late["outcome"] == "compiled_uncached"
    assert "on b" in late["reason"]
    assert late["stats"]["fenced"] == 1
    assert remote.run("c")["sha256"] == successor["sha256"]


def test_damaged_blob_is_compiled_again_once_for_all_clients(remote: Fleet, service: Service) -> None:
    remote.run("a")
    service.kill()  # which has the blob in memory, and could serve it however damaged the store
    [blob] = (remote.tmp / "store").glob("*/blobs/sha256/*/*")
    blob.write_bytes(blob.read_bytes()[:-1] + b"\0")
    second = Service(remote.tmp / "store", remote.tmp / "log", "--listen", service.url.removeprefix("http://"))
    try:
        children = [remote.start(host, seconds=0.3, lease=30.0) for host in "bcde"]
        remote.go(*children)
        results = [remote.result(child) for child in children]
    finally:
        second.close()
    assert remote.compiles == 2
    assert len({result["sha256"] for result in results}) == 1


def test_waiters_hold_out_while_the_service_restarts(remote: Fleet, service: Service) -> None:
    owner = remote.start("a", seconds=6.0, lease=60.0)
    waiters = [remote.start(host, lease=60.0) for host in "bc"]
    remote.go(owner)
    eventually(lambda: remote.compiles, "the owner compiles")
    remote.go(*waiters)
    eventually(
        lambda: service.log.read_bytes().count(b"GET /v1/namespaces/{ns}/leases/{key} 200") >= 3, "all have looked"
    )
    service.kill()
    second = Service(remote.tmp / "store", remote.tmp / "log", "--listen", service.url.removeprefix("http://"))
    try:
        results = [remote.result(child) for child in (owner, *waiters)]
    finally:
        second.close()
    assert remote.compiles == 1
    assert [result["outcome"] for result in results] == ["compiled", "shared_hit", "shared_hit"]
