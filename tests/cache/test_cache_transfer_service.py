"""Transfers and jobs through a real service process: the same as on a directory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cache_kit import never, parts
from service_kit import Service
from transfer_kit import legacy_cache

from cache_server import CacheSettings, NeffCache, Outcome
from cache_server.jobs.record import JobRecord
from cache_server.jobs.shelf import read_job, shelf_of
from cache_server.leases.owner import Owner
from cache_server.permissions import permissions_named
from cache_server.transfer.exporting import Export
from cache_server.transfer.importing import Import
from cache_server.transfer.layouts import Layout
from cache_server.transfer.prefetch import prefetch
from cache_server.transfer.push import push
from cache_server.transfer.report import Report
from cache_server.transfer.sinks import open_sink
from cache_server.transfer.source import open_source
from cache_server.transfer.tree import Tree
from neuron_runtime.compiler.errors import CompileFailure, FailureKind

Serve = Callable[..., Service]


def client(service: Service, tmp_path: Path, host: str, **settings: object) -> NeffCache:
    """A client in a namespace of this test's own."""
    given = {"namespace": namespace_of(tmp_path), **settings}
    return NeffCache.open(settings=CacheSettings(service.url, tmp_path / f"local-{host}", **given))  # type: ignore[arg-type]


def namespace_of(tmp_path: Path) -> str:
    return tmp_path.name.lower()


def jobs(tmp_path: Path) -> str:
    return f"/v1/namespaces/{namespace_of(tmp_path)}/jobs"


def take_in(path: Path, cache: NeffCache) -> Report:
    assert cache.storage is not None
    tree = Tree(cache.settings.local_dir, permissions_named("private"))
    with open_source(path) as source:
        return Import(source, cache.storage, tree, owner=Owner.here()).run()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for all tests here; each has a namespace."""
    place = tmp_path_factory.mktemp("service")
    service = Service(place / "store", place / "log")
    yield service
    service.close()


def test_job_is_written_down_and_fetched(service: Service, tmp_path: Path) -> None:
    a = client(service, tmp_path, "a", job="train")
    for name in ("one", "two"):
        a.get_or_compile(parts(name), lambda: b"neff" * 100, label=name)
    a.close_job()
    b = client(service, tmp_path, "b")
    assert b.storage is not None
    shelf = shelf_of(b.storage)
    assert shelf.names() == ["train"]
    job = read_job(shelf, "train")
    assert set(job.keys.values()) == {"one", "two"}
    assert prefetch(b.storage.store, b.local, job.keys).counts["moved"] == 2
    assert b.get_or_compile(parts("one"), never).outcome is Outcome.LOCAL_HIT
    for part, _ in list(shelf.records("train")):
        shelf.remove("train", part)
    assert shelf.names() == []


def test_bundle_goes_out_of_a_service_and_into_one(service: Service, tmp_path: Path) -> None:
    a = client(service, tmp_path, "a")
    a.get_or_compile(parts("one"), lambda: b"1" * 1000, label="one")
    a.get_or_compile(parts("two"), lambda: b"2" * 1000, label="two")
    assert a.storage is not None
    with open_sink(tmp_path / "out.tar") as sink:
        report = Export(a.storage.store, sink, "out.tar").run(a.storage.store.entries(), Layout.BUNDLE)
    assert report.counts["moved"] == 2
    other = client(service, tmp_path, "other", namespace="elsewhere")
    assert take_in(tmp_path / "out.tar", other).counts["moved"] == 2
    assert take_in(tmp_path / "out.tar", other).counts["present"] == 2
    assert other.get_or_compile(parts("two"), never).outcome is Outcome.SHARED_HIT


def test_older_cache_goes_into_a_service(service: Service, tmp_path: Path) -> None:
    cache = client(service, tmp_path, "a")
    assert take_in(legacy_cache(tmp_path / "legacy"), cache).counts == {
        "moved": 2,
        "present": 0,
        "skipped": 7,
        "failed": 0,
    }
    assert [entry.label for entry in cache.entries()] == ["MODULE_100+aaaa"]


def test_push_after_an_outage_takes_the_place_of_a_failure(service: Service, tmp_path: Path) -> None:
    alone = NeffCache.open(settings=CacheSettings(None, tmp_path / "local-a"))
    alone.get_or_compile(parts(), lambda: b"neff" * 10, label="graph")
    other = client(service, tmp_path, "b")

    def fail() -> bytes:
        raise CompileFailure("bad luck", kind=FailureKind.COMPILER_ERROR)

    with pytest.raises(CompileFailure):
        other.get_or_compile(parts(), fail)
    a = client(service, tmp_path, "a")
    assert a.storage is not None
    assert push(a.local, a.storage.store).counts["moved"] == 1
    assert other.get_or_compile(parts(), never).neff == b"neff" * 10


def test_service_that_is_gone_costs_a_job_nothing_but_its_record(serve: Serve, tmp_path: Path) -> None:
    service = serve()
    cache = client(service, tmp_path, "a", job="train", budget_seconds=0.3)
    service.kill()
    assert cache.get_or_compile(parts(), lambda: b"neff").neff == b"neff"
    cache.close_job()


def test_client_that_only_reads_writes_no_record(service: Service, tmp_path: Path) -> None:
    cache = client(service, tmp_path, "a", job="train", mode="read-only")
    cache.get_or_compile(parts(), lambda: b"neff")
    cache.close_job()
    assert service.get(f"{jobs(tmp_path)}/train").json()["parts"] == []


def test_service_takes_no_record_that_is_none(service: Service, tmp_path: Path) -> None:
    job = f"{jobs(tmp_path)}/train"
    good = JobRecord("train", "h", 1, "u", 1.0, 2.0, {"0" * 64: "x"}).encode()
    assert service.request("PUT", f"{job}/h-1", good).status == 204
    assert service.get(f"{job}/h-1").data == good
    for path, body in [
        (f"{job}/h-2", b"{}"),
        (f"{job}/h-2", good.replace(b"train", b"other")),
        (f"{job}/.hidden", good),
        (f"{jobs(tmp_path)}/.hidden/h-2", good),
        (f"{job}/h-2", json.dumps({"schema": 1, "keys": {"../x": ""}}).encode()),
    ]:
        answer = service.request("PUT", path, body)
        assert (answer.status, answer.slug) == (400, "bad-request")
    assert service.get(job).json()["parts"] == ["h-1"]
    assert service.get(f"{job}/h-9").slug == "not-found"
    assert service.request("DELETE", f"{job}/h-1").status == 204
