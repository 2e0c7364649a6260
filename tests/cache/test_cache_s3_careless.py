"""A server that accepts conditional writes and ignores the conditions: s3rver, as many others do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cache_kit import never, open_cache, parts
from s3_kit import Server
from test_cache_manifest import NEFF
from tools_kit import installed

from cache_server.errors import NotExclusiveError
from cache_server.leases.probe import probe
from cache_server.manifest import Blob
from cache_server.result import Outcome
from cache_server.storage import open_storage
from cache_server.store import Put

pytestmark = pytest.mark.fleet

KEY = "S3RVER"  # the one identity that it knows


@pytest.fixture(scope="module")
def s3rver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    npm = ["npm", "install", "--no-audit", "--no-fund", "--prefix", "{place}", "s3rver@3.7.1"]
    program = installed(request.config, "s3rver-3.7.1", "node_modules/s3rver/bin/s3rver.js", npm)
    data = tmp_path_factory.mktemp("s3rver")
    options = ["-a", "127.0.0.1", "-p", "{port}", "--no-vhost-buckets", "--configure-bucket", "neffs"]
    server = Server(["node", str(program), "-d", str(data), *options], data.with_suffix(".log"))
    yield server
    server.stop()


@pytest.fixture
def careless_url(s3rver: Server, aws: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    monkeypatch.setenv("NEURON_ENV_CACHE_S3_ENDPOINT", s3rver.endpoint)
    return f"s3://neffs/{tmp_path.name}"


def test_probe_refuses_leases_and_says_what_to_use_instead(careless_url: str, s3rver: Server) -> None:
    with pytest.raises(NotExclusiveError, match="does not exclude") as caught:
        probe(open_storage(careless_url).records)
    assert s3rver.endpoint in caught.value.message
    assert "Amazon S3" in (caught.value.hint or "")


def test_cache_without_leases_still_stores_and_serves(
    tmp_path: Path, careless_url: str, s3rver: Server, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = (open_cache(tmp_path, host, url=careless_url) for host in "ab")
    for ir in ("module {}", "module { }"):
        assert a.get_or_compile(parts(ir), ir.encode).outcome is Outcome.COMPILED
        hit = b.get_or_compile(parts(ir), never)
        assert (hit.outcome, hit.neff) == (Outcome.SHARED_HIT, ir.encode())
    [said] = [record.getMessage() for record in caplog.records]
    assert s3rver.endpoint in said
    assert "several hosts may compile the same" in said
    assert list(open_storage(careless_url).store.backend.walk("leases")) == []


def test_first_result_stays_although_the_server_would_replace_it(careless_url: str) -> None:
    store = open_storage(careless_url).store
    other = replace(NEFF, files={"module.neff": Blob("cd" * 32, 5)})
    assert store.put_manifest(NEFF) is Put.CREATED
    assert store.put_manifest(other) is Put.OTHER
    assert store.read_manifest(NEFF.key) == NEFF


def test_damaged_object_is_set_aside_there_too(tmp_path: Path, careless_url: str, s3rver: Server) -> None:
    a, b = (open_cache(tmp_path, host, url=careless_url) for host in "ab")
    a.get_or_compile(parts(), lambda: b"neff")
    store = open_storage(careless_url).store
    [path] = store.backend.walk("blobs")
    store.backend.write(path, b"nefg")
    again = b.get_or_compile(parts(), lambda: b"neff")
    assert (again.outcome, b.stats.quarantined) == (Outcome.COMPILED, 1)
    assert len(list(store.backend.walk("quarantine"))) == 1
