"""A bad network before the cache service: the job always finishes, with the right bytes and in bounded time."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cache_kit import eventually, never, parts
from client_kit import FaultProxy, close_cache, remote_cache
from service_kit import Service

from cache_server import NeffCache, Outcome
from cache_server.manifest import Blob
from cache_server.remote.downloads import Download
from cache_server.remote.tier import RemoteTier
from cache_server.remote.uploads import Upload

pytestmark = pytest.mark.fleet

PASSING = ["truncate", "flip", "reset", "headers", "lose", "status:500", "status:503", "status:429", "delay:0.05"]
LASTING = ["truncate", "flip", "reset", "headers", "lose", "status:500", "status:503", "status:429", "stall", "delay:3"]
NEFF = os.urandom(200_000)
TIMEOUT, BUDGET = 0.5, 2.0
MARGIN = 5.0  # for a busy machine


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    place = tmp_path_factory.mktemp("service")
    service = Service(place / "store", place / "log")
    yield service
    service.close()


@pytest.fixture
def proxy(service: Service) -> Iterator[FaultProxy]:
    proxy = FaultProxy(int(service.url.rpartition(":")[2]))
    yield proxy
    proxy.close()


@contextlib.contextmanager
def opened(cache: NeffCache) -> Iterator[NeffCache]:
    yield cache
    close_cache(cache)


@pytest.mark.parametrize("fault", PASSING)
def test_passing_fault_costs_a_retry_and_no_hit(
    service: Service, proxy: FaultProxy, tmp_path: Path, fault: str
) -> None:
    key = parts(f"passing {fault}")
    with opened(remote_cache(service.url, tmp_path / "a")) as a:
        a.get_or_compile(key, lambda: NEFF)
    with opened(remote_cache(proxy.url, tmp_path / "b")) as b:
        proxy.befall(fault, 1)
        hit = b.get_or_compile(key, never)
        assert (hit.outcome, hit.neff) == (Outcome.SHARED_HIT, NEFF)
        assert b.stats.retries == (0 if fault.startswith("delay") else 1)
        assert (b.stats.misses, b.stats.errors, b.stats.timeouts, b.stats.breaker_open) == (0, 0, 0, 0)


@pytest.mark.parametrize("fault", ["lose", "reset", "truncate"])
def test_lost_answers_while_owning_lose_no_lease_and_no_result(
    service: Service, proxy: FaultProxy, tmp_path: Path, fault: str
) -> None:
    key = parts(f"owning {fault}")
    with opened(remote_cache(proxy.url, tmp_path / "a")) as cache:
        cache.on_phase = lambda phase: proxy.befall(fault, 1)
        result = cache.get_or_compile(key, lambda: NEFF)
        assert (result.outcome, result.epoch) == (Outcome.COMPILED, 1)
    with opened(remote_cache(service.url, tmp_path / "b")) as other:
        assert other.get_or_compile(key, never).neff == NEFF


@pytest.mark.parametrize("fault", LASTING)
def test_lasting_fault_delays_a_job_by_its_budget_and_then_no_more(
    proxy: FaultProxy, tmp_path: Path, fault: str
) -> None:
    with opened(remote_cache(proxy.url, tmp_path / "a", timeout=TIMEOUT, budget=BUDGET)) as cache:
        proxy.befall(fault)
        for number in range(3):
            begun = time.monotonic()
            result = cache.get_or_compile(parts(f"lasting {fault} {number}"), lambda: NEFF)
            assert result.neff == NEFF
            assert time.monotonic() - begun < 2 * BUDGET + MARGIN
        if fault == "flip":
            return  # such a network lets some answers through
        assert result.outcome is Outcome.COMPILED_UNCACHED
        assert cache.stats.misses == 0
        assert cache.stats.breaker_open >= 1
        assert cache.stats.errors + cache.stats.timeouts + cache.stats.breaker_open == 3
        assert cache.stats.timeouts >= (1 if fault in ("stall", "delay:3") else 0)
        assert cache.stats.breaker_opened == 1
        proxy.befall("none", 0)
        tier = cache.storage
        assert tier is not None
        eventually(lambda: not tier.trouble().breaker_is_open, "the breaker closes by itself")


def test_open_breaker_costs_a_new_key_next_to_nothing(proxy: FaultProxy, tmp_path: Path) -> None:
    with opened(remote_cache(proxy.url, tmp_path / "a", timeout=TIMEOUT, budget=BUDGET)) as cache:
        proxy.befall("stall")
        cache.get_or_compile(parts("first"), lambda: NEFF)
        cache.get_or_compile(parts("second"), lambda: NEFF)
        quickest = min(timed(cache, f"open {number}") for number in range(10))
        assert cache.stats.breaker_open >= 10
        assert quickest < 0.05


def timed(cache: NeffCache, ir: str) -> float:
    begun = time.monotonic()
    cache.get_or_compile(parts(ir), lambda: b"neff")
    return time.monotonic() - begun


def test_service_that_is_down_at_start_is_picked_up_when_it_comes(tmp_path: Path) -> None:
    first = Service(tmp_path / "store", tmp_path / "log")
    url = first.url
    first.close()
    with opened(remote_cache(url, tmp_path / "a")) as cache:
        assert cache.get_or_compile(parts("early"), lambda: NEFF).outcome is Outcome.COMPILED_UNCACHED
        second = Service(tmp_path / "store", tmp_path / "log", "--listen", url.removeprefix("http://"))
        try:
            tier = cache.storage
            assert tier is not None
            eventually(lambda: not tier.trouble().breaker_is_open, "the breaker closes by itself")
            assert cache.get_or_compile(parts("later"), lambda: NEFF).outcome is Outcome.COMPILED
        finally:
            second.close()


def test_owner_keeps_its_lease_over_a_restart_of_the_service(tmp_path: Path) -> None:
    services = [Service(tmp_path / "store", tmp_path / "log")]
    url = services[0].url

    def compile_over_a_restart() -> bytes:
        services[0].kill()
        services.append(Service(tmp_path / "store", tmp_path / "log", "--listen", url.removeprefix("http://")))
        return NEFF

    try:
        with opened(remote_cache(url, tmp_path / "a", lease_seconds=60.0)) as cache:
            result = cache.get_or_compile(parts(), compile_over_a_restart)
            assert (result.outcome, result.epoch) == (Outcome.COMPILED, 1)
    finally:
        for service in services:
            service.close()


def test_owner_whose_service_stays_away_keeps_its_neff(tmp_path: Path) -> None:
    service = Service(tmp_path / "store", tmp_path / "log")

    def compile_and_lose() -> bytes:
        service.kill()
        return NEFF

    try:
        with opened(remote_cache(service.url, tmp_path / "a", budget=1.0)) as cache:
            result = cache.get_or_compile(parts(), compile_and_lose)
            assert (result.outcome, result.neff) == (Outcome.COMPILED_UNCACHED, NEFF)
            assert cache.get_or_compile(parts(), never).outcome is Outcome.LOCAL_HIT
    finally:
        service.close()


def tier_of(cache: NeffCache) -> RemoteTier:
    assert isinstance(cache.storage, RemoteTier)
    return cache.storage


def test_broken_download_goes_on_where_it_stopped(service: Service, proxy: FaultProxy, tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    with opened(remote_cache(service.url, tmp_path)) as direct:
        blob = tier_of(direct).store.put_blob(data)
    with opened(remote_cache(proxy.url, tmp_path)) as cache:
        proxy.befall("truncate", 2)
        path = f"/namespaces/default/blobs/{blob.sha256}"
        assert Download(tier_of(cache).service, path, blob.size).read() == data
        assert cache.stats.retries == 2
    eventually(
        lambda: sum(line.get("status") == 206 for line in service.logged() if "blobs" in str(line.get("path"))) >= 1,
        "what was missing was asked for as a range",
    )


def test_large_download_comes_in_ranges_of_which_some_break(
    service: Service, proxy: FaultProxy, tmp_path: Path
) -> None:
    data = os.urandom(1_000_001)
    with opened(remote_cache(service.url, tmp_path)) as direct:
        blob = tier_of(direct).store.put_blob(data)
    with opened(remote_cache(proxy.url, tmp_path)) as cache:
        proxy.befall("truncate", 3)
        path = f"/namespaces/default/blobs/{blob.sha256}"
        download = Download(tier_of(cache).service, path, blob.size, limits=(100_000, 200_000))
        assert download.read() == data


def test_large_upload_outlives_lost_answers(service: Service, proxy: FaultProxy, tmp_path: Path) -> None:
    import hashlib

    data = os.urandom(900_000)
    blob = Blob(hashlib.sha256(data).hexdigest(), len(data))
    with opened(remote_cache(proxy.url, tmp_path)) as cache:
        service_ = tier_of(cache).service
        proxy.befall("lose", 1)
        Upload(service_, "/namespaces/default", limits=(100_000, 250_000)).put(blob, data)
        proxy.befall("none", 0)
        assert tier_of(cache).store.read_blob(blob) == data


def test_blob_that_is_not_there_is_no_fault(service: Service, tmp_path: Path) -> None:
    with opened(remote_cache(service.url, tmp_path)) as cache:
        assert tier_of(cache).store.read_blob(Blob("0" * 64, 10)) is None
        assert cache.stats.retries == 0
