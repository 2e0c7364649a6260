"""One compile for a fleet whose store is S3: real processes, a real server, kill -9, SIGSTOP, a bad network."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cache_kit import Fleet, eventually, never, open_cache, parts, stopped
from s3_kit import Proxy, Server, client

from cache_server.result import Outcome
from cache_server.store import LAYOUT

pytestmark = pytest.mark.fleet

UNHURRIED = 60.0  # a lease that no pause of a busy machine outlasts
BOUND = 20.0  # of three attempts of half a second and their pauses, on a busy machine


@pytest.fixture
def s3_fleet(tmp_path: Path, s3_url: str) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, s3_url)
    yield fleet
    fleet.stop()


def blob_key(s3: Any, url: str) -> tuple[str, str]:
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    [found] = s3.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/{LAYOUT}/blobs/")["Contents"]
    return bucket, found["Key"]


def test_sixteen_hosts_compile_a_cold_key_once(s3_fleet: Fleet) -> None:
    children = [s3_fleet.start(f"h{number}", seconds=1.0, lease=UNHURRIED) for number in range(16)]
    s3_fleet.go(*children)
    results = [s3_fleet.result(child) for child in children]
    assert s3_fleet.compiles == 1
    assert len({result["sha256"] for result in results}) == 1
    assert [result["outcome"] for result in results].count("compiled") == 1
    assert {result["outcome"] for result in results} == {"compiled", "shared_hit"}


@pytest.mark.parametrize("step", ["mid-compile", "publishing"])
def test_owner_killed_before_publishing_is_taken_over(s3_fleet: Fleet, step: str) -> None:
    owner = s3_fleet.start("a", dies_at=step, lease=1.0)
    s3_fleet.go(owner)
    assert owner.wait(timeout=60) == -signal.SIGKILL
    survivor = s3_fleet.run("b", lease=UNHURRIED)
    assert (survivor["outcome"], survivor["took_over"], survivor["epoch"]) == ("compiled", True, 2)
    later = s3_fleet.run("c")
    assert (later["outcome"], later["sha256"]) == ("shared_hit", survivor["sha256"])


def test_owner_killed_right_after_publishing_loses_nothing(s3_fleet: Fleet) -> None:
    owner = s3_fleet.start("a", dies_at="published", lease=UNHURRIED)
    s3_fleet.go(owner)
    assert owner.wait(timeout=60) == -signal.SIGKILL
    assert s3_fleet.run("b")["outcome"] == "shared_hit"
    assert s3_fleet.compiles == 1


def test_owner_stopped_past_its_lease_cannot_publish(s3_fleet: Fleet) -> None:
    owner = s3_fleet.start("a", stops_at="publishing", lease=1.0)
    s3_fleet.go(owner)
    eventually(lambda: stopped(owner), "the owner stops")
    successor = s3_fleet.run("b", lease=UNHURRIED)
    assert (successor["outcome"], successor["epoch"]) == ("compiled", 2)
    os.kill(owner.pid, signal.SIGCONT)
    late = s3_fleet.result(owner)
    assert late["outcome"] == "compiled_uncached"
    assert late["stats"]["fenced"] == 1
    manifest = open_cache(s3_fleet.tmp, url=s3_fleet.url).peek(parts())
    assert manifest is not None
    assert (manifest.files["module.neff"].sha256, manifest.epoch) == (successor["sha256"], 2)


@pytest.mark.parametrize("damage", ["truncated", "garbage", "gone"])
def test_damaged_object_is_compiled_again_once_for_all(tmp_path: Path, s3_url: str, moto: Server, damage: str) -> None:
    open_cache(tmp_path, "a", url=s3_url).get_or_compile(parts(), lambda: b"neff" * 1000)
    s3 = client(moto.endpoint)
    bucket, key = blob_key(s3, s3_url)
    if damage == "gone":
        s3.delete_object(Bucket=bucket, Key=key)
    else:
        s3.put_object(Bucket=bucket, Key=key, Body=b"neff" * 999 + (b"" if damage == "truncated" else b"nefg"))
    b, c = (open_cache(tmp_path, host, url=s3_url) for host in "bc")
    again = b.get_or_compile(parts(), lambda: b"neff" * 1000)
    assert (again.outcome, b.stats.quarantined) == (Outcome.COMPILED, int(damage != "gone"))
    hit = c.get_or_compile(parts(), lambda: b"not to be compiled")
    assert (hit.outcome, hit.neff) == (Outcome.SHARED_HIT, b"neff" * 1000)
    prefix = key.partition("/blobs/")[0] + "/quarantine/"
    assert s3.list_objects_v2(Bucket=bucket, Prefix=prefix)["KeyCount"] == b.stats.quarantined
    s3.close()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_job_goes_on_without_a_server_and_says_so_once(
    tmp_path: Path, s3_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nobody = f"http://127.0.0.1:{listener.getsockname()[1]}"
    monkeypatch.setenv("NEURON_ENV_CACHE_S3_ENDPOINT", nobody)
    cache = open_cache(tmp_path, url=s3_url)
    for ir in ("module {}", "module { }"):
        result = cache.get_or_compile(parts(ir), lambda: b"neff")
        assert (result.outcome, result.neff) == (Outcome.COMPILED_UNCACHED, b"neff")
    [said] = warnings(caplog)
    assert nobody in said
    assert "cannot be reached" in said
    assert (cache.stats.errors, cache.stats.breaker_open, cache.stats.misses) == (1, 1, 0)


def deny(endpoint: str, url: str, action: str) -> None:
    bucket = url.removeprefix("s3://").partition("/")[0]
    statement = {"Effect": "Deny", "Principal": "*", "Action": action, "Resource": f"arn:aws:s3:::{bucket}/*"}
    s3 = client(endpoint)
    s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps({"Version": "2012-10-17", "Statement": [statement]}))
    s3.close()


def test_job_that_may_only_read_gets_hits_and_compiles_the_rest(
    tmp_path: Path, s3_url: str, moto: Server, caplog: pytest.LogCaptureFixture
) -> None:
    open_cache(tmp_path, "a", url=s3_url).get_or_compile(parts(), lambda: b"neff")
    deny(moto.endpoint, s3_url, "s3:PutObject")
    reader = open_cache(tmp_path, "b", url=s3_url)
    assert reader.get_or_compile(parts(), never).outcome is Outcome.SHARED_HIT
    for ir in ("other", "another"):
        assert reader.get_or_compile(parts(ir), lambda: b"mine").outcome is Outcome.COMPILED_UNCACHED
    [said] = warnings(caplog)
    assert "denies access" in said


def test_job_that_may_not_read_compiles_and_says_so(
    tmp_path: Path, s3_url: str, moto: Server, caplog: pytest.LogCaptureFixture
) -> None:
    deny(moto.endpoint, s3_url, "s3:GetObject")
    result = open_cache(tmp_path, url=s3_url).get_or_compile(parts(), lambda: b"neff")
    assert result.outcome is Outcome.COMPILED_UNCACHED
    [said] = warnings(caplog)
    assert "denies access" in said


def test_server_that_stops_answering_delays_a_job_by_a_bounded_time(
    tmp_path: Path, s3_url: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NEURON_ENV_CACHE_S3_TIMEOUT", "0.5")
    proxy.silent = True
    begun = time.monotonic()
    result = open_cache(tmp_path, url=s3_url).get_or_compile(parts(), lambda: b"neff")
    assert time.monotonic() - begun < BOUND
    assert (result.outcome, result.neff) == (Outcome.COMPILED_UNCACHED, b"neff")
    [said] = warnings(caplog)
    assert "does not answer in time" in said


def test_server_that_goes_away_during_the_compile_costs_only_the_publishing(
    tmp_path: Path, s3_url: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEURON_ENV_CACHE_S3_TIMEOUT", "0.5")
    cache = open_cache(tmp_path, url=s3_url)

    def compile_it() -> bytes:
        proxy.silent = True
        return b"neff"

    result = cache.get_or_compile(parts(), compile_it)
    assert (result.outcome, result.neff) == (Outcome.COMPILED_UNCACHED, b"neff")
    assert cache.get_or_compile(parts(), lambda: b"other").outcome is Outcome.LOCAL_HIT
