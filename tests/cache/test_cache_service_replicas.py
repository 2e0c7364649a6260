"""Two replicas on one store, a directory and S3: kill -9 of either at any step loses nothing and repeats nothing."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import urllib3
from cache_kit import eventually, parts
from service_kit import OWNER, Answer, Service, entries, leases, manifest

from cache_server.leases.owner import Owner
from cache_server.leases.record import LeaseRecord, State
from cache_server.storage import open_storage

pytestmark = pytest.mark.fleet

KEY = parts().key
STEPS = ("acquired", "compiling", "stored", "published")
Serve = Callable[..., Service]


@pytest.fixture(params=["directory", "s3"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "directory":
        return str(tmp_path / "served")
    url: str = request.getfixturevalue("s3_url")
    return url


@dataclass
class Job:
    """A client of both replicas that compiles what nobody has; it asks the other one when one is gone."""

    replicas: list[Service]
    store: str
    at_step: Callable[[str], None] = lambda step: None
    compiles: int = 0
    waited: int = 0
    token: str = field(default_factory=lambda: os.urandom(16).hex())

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Answer:
        for _ in range(4):
            try:
                return self.replicas[0].request(method, path, body)
            except urllib3.exceptions.HTTPError:
                self.replicas.append(self.replicas.pop(0))
        raise AssertionError("no replica answers")

    def get_or_compile(self) -> str:
        """The digest of the NEFF."""
        while True:
            taken = self.ask(
                "POST", leases(KEY, "acquire"), {"owner": OWNER, "lease_seconds": 120, "token": self.token}
            )
            if taken.status == 201:
                return self._compile(taken.json())
            document = taken.json()["lease"]
            while document["state"] == "held":
                self.waited += 1
                document = self.ask("GET", f"{leases(KEY)}?after={document['version']}&wait=60").json()
            if document["state"] == "settled":
                digest: str = document["record"]["manifest"]["files"]["module.neff"]["sha256"]
                return digest

    def _compile(self, lease: dict[str, Any]) -> str:
        holder = {"token": lease["token"], "epoch": lease["epoch"]}
        self.at_step("acquired")
        self.compiles += 1
        assert self.ask("POST", leases(KEY, "heartbeat"), {**holder, "phase": "compiling"}).status == 200
        self.at_step("compiling")
        blob = open_storage(self.store).store.put_blob(os.urandom(1000))
        self.at_step("stored")
        made = manifest(parts(), blob, epoch=lease["epoch"])
        published = self.ask("POST", leases(KEY, "publish"), {**holder, "manifest": made.to_json()})
        assert published.status == 201, published.data
        self.at_step("published")
        return blob.sha256


@pytest.mark.parametrize("step", STEPS)
def test_replica_killed_at_a_step_of_a_compile_costs_nothing(serve: Serve, store_url: str, step: str) -> None:
    first, second = serve(store_url), serve(store_url)

    def kill(now: str) -> None:
        if now == step:
            first.kill()

    owner, waiter = Job([first, second], store_url, kill), Job([second, first], store_url)
    begun = threading.Event()
    results: list[str] = []

    def own() -> None:
        results.append(owner.get_or_compile())

    def wait() -> None:
        begun.wait(60)
        results.append(waiter.get_or_compile())

    kill_at_step, owner.at_step = owner.at_step, lambda now: (begun.set(), kill_at_step(now))[1]
    threads = [threading.Thread(target=own), threading.Thread(target=wait)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=100)
    assert len(results) == 2
    assert results[0] == results[1]
    assert (owner.compiles, waiter.compiles) == (1, 0)
    entry = eventually(lambda: (e := second.get(entries(KEY))).status == 200 and e, "the entry is listed")
    assert entry.json()["files"]["module.neff"]["sha256"] == results[0]


def test_replica_killed_in_the_middle_of_a_publish_is_finished_by_the_other(serve: Serve, store_url: str) -> None:
    first, second = serve(store_url), serve(store_url)
    job = Job([first, second], store_url)
    killer = threading.Timer(0.0, first.kill)
    job.at_step = lambda step: killer.start() if step == "stored" else None
    digest = job.get_or_compile()
    killer.join()
    assert job.compiles == 1
    assert second.get(entries(KEY)).json()["files"]["module.neff"]["sha256"] == digest
    assert Job([second], store_url).get_or_compile() == digest


def test_published_but_unlisted_entry_is_listed_by_whoever_comes_next(serve: Serve, store_url: str) -> None:
    storage = open_storage(store_url)
    made = manifest(parts(), storage.store.put_blob(b"neff"), epoch=3)
    held = LeaseRecord(State.HELD, 3, "ab" * 16, Owner("h1", 1, "tester"), 60.0, "publishing", 1000.0)
    storage.records.create_exclusive(storage.store.record_name(KEY), held.published(made).encode())
    service = serve(store_url)
    assert service.get(entries(KEY)).status == 404
    assert service.get(leases(KEY)).json()["state"] == "settled"
    eventually(lambda: service.get(entries(KEY)).status == 200, "it is listed")


def test_replicas_exclude_each_other_and_one_publish_reaches_waiters_of_both(serve: Serve, store_url: str) -> None:
    replicas = [serve(store_url), serve(store_url)]
    jobs = [Job([replicas[at % 2], replicas[1 - at % 2]], store_url) for at in range(6)]
    results: list[str] = []
    threads = [threading.Thread(target=lambda job=job: results.append(job.get_or_compile())) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=100)
    assert len(results) == 6
    assert len(set(results)) == 1
    assert sum(job.compiles for job in jobs) == 1
