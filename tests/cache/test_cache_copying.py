"""Copying entries between stores of every kind."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cache_kit import parts
from client_kit import PATIENT
from service_kit import Service, manifest

from cache_server.errors import StoreError
from cache_server.manifest import Blob, Manifest
from cache_server.remote.options import RemoteOptions
from cache_server.remote.tier import RemoteTier
from cache_server.storage import Storage, open_storage
from cache_server.store import Store, blob_path
from cache_server.tier import SharedTier
from cache_server.transfer.copying import copy
from cache_server.transfer.report import Fate, Report

Serve = Callable[..., Service]
LARGE = bytes(range(256)) * (80 << 10)  # 20 MiB: several requests of an upload, and of a download


@pytest.fixture
def source(tmp_path: Path) -> Storage:
    """A directory with three entries, two of which share a blob."""
    storage = open_storage(str(tmp_path / "source"))
    for ir, data in (("a", b"small"), ("b", b"small"), ("c", LARGE)):
        storage.store.put_manifest(manifest(parts(ir), storage.store.put_blob(data)))
    return storage


def remote(url: str) -> RemoteTier:
    return RemoteTier.open(RemoteOptions(url, timeout_seconds=PATIENT), uses=False)


def whole(source: SharedTier, target: SharedTier, **options: bool) -> Report:
    return copy(source.store, target.store, source.store.entries(), **options)


def held(tier: SharedTier) -> dict[str, str]:
    """The SHA-256 of what each key's NEFF really is."""
    found = {}
    for entry in tier.store.entries():
        data = tier.store.read_blob(next(iter(entry.files.values())))
        assert data is not None
        found[entry.key] = hashlib.sha256(data).hexdigest()
    return found


def counts(report: Report) -> dict[str, int]:
    return {name: count for name, count in report.counts.items() if count}


def test_entries_go_from_a_directory_to_a_service_to_a_bucket_and_back(
    source: Storage, serve: Serve, s3_url: str, tmp_path: Path
) -> None:
    openers: list[Callable[[], SharedTier]] = [
        lambda: remote(serve().url),
        lambda: open_storage(s3_url),
        lambda: remote(serve(s3_url).url),
        lambda: open_storage(str(tmp_path / "back")),
    ]
    before: SharedTier = source
    for number, opener in enumerate(openers):
        step = opener()
        if number != 2:  # the service over the bucket has what the bucket has
            assert counts(whole(before, step, dry_run=True)) == {"moved": 3}
            assert counts(whole(before, step)) == {"moved": 3}
        again = whole(before, step)
        assert (counts(again), again.moved_bytes) == ({"present": 3}, 0)
        assert held(step) == held(source)
        before = step
    first = next(iter(source.store.entries()))
    assert before.store.read_manifest(first.key) == first


def test_copying_that_was_interrupted_goes_on_where_it_was(source: Storage, tmp_path: Path) -> None:
    target = open_storage(str(tmp_path / "target"))
    begun: list[str] = []

    class Breaking(Store):
        """Begins blobs until something goes wrong at the large one."""

        broken = True

        def put_manifest(self, manifest: Manifest):  # type: ignore[no-untyped-def]
            if self.broken and manifest.key == parts("c").key:
                raise StoreError("the network is gone")
            return super().put_manifest(manifest)

        def receive_blob(self, blob: Blob, *, name: str = ""):  # type: ignore[no-untyped-def]
            begun.append(blob.sha256)
            return super().receive_blob(blob, name=name)

    store = Breaking(target.store.backend)
    first = copy(source.store, store, source.store.entries())
    assert counts(first) == {"moved": 2, "failed": 1}
    assert "the network is gone" in first.having(Fate.FAILED)[0].why
    sent = len(begun)
    store.broken = False
    assert counts(copy(source.store, store, source.store.entries())) == {"moved": 1, "present": 2}
    assert len(begun) == sent, "a blob that had arrived was sent again"
    assert held(target) == held(source)


@pytest.mark.parametrize("kind", ["directory", "service"])
def test_what_is_damaged_or_missing_at_the_source_arrives_nowhere(
    source: Storage, serve: Serve, tmp_path: Path, kind: str
) -> None:
    root = Path(source.store.url.removeprefix("file://"))
    large, small = hashlib.sha256(LARGE).hexdigest(), hashlib.sha256(b"small").hexdigest()
    with (root / blob_path(large)).open("r+b") as file:
        file.seek(5)
        file.write(b"?")
    (root / blob_path(small)).unlink()
    target: SharedTier = remote(serve().url) if kind == "service" else open_storage(str(tmp_path / "target"))
    report = whole(source, target)
    assert counts(report) == {"failed": 3}
    whys = {item.key: item.why for item in report.items}
    assert "does not have the digest" in whys[parts("c").key]
    assert "is missing" in whys[parts("a").key]
    assert list(target.store.entries()) == []
    assert target.store.open_blob(large) is None


def test_nothing_is_replaced_and_a_failure_gives_way(source: Storage, tmp_path: Path) -> None:
    from cache_server.manifest import Failure
    from neuron_runtime.compiler.errors import FailureKind

    target = open_storage(str(tmp_path / "target"))
    other = manifest(parts("a"), target.store.put_blob(b"another result"))
    target.store.put_manifest(other)
    failure = Failure(FailureKind.COMPILER_ERROR, "no", 4e9)
    target.store.put_manifest(manifest(parts("b"), None, epoch=3, failure=failure))
    report = whole(source, target)
    assert counts(report) == {"moved": 2, "present": 1}
    assert [item.why for item in report.items if item.key == parts("a").key] == ["with other content"]
    assert target.store.read_manifest(parts("a").key) == other
    assert target.store.read_manifest(parts("b").key) == replace(manifest(parts("b"), Blob(*_small())), epoch=4)


def test_reading_for_a_copy_counts_as_no_use(source: Storage, serve: Serve, tmp_path: Path) -> None:
    service = serve()
    whole(source, remote(service.url))
    whole(remote(service.url), open_storage(str(tmp_path / "copy")))
    requests = service.get("/v1/stats").json()["requests"]
    assert (requests["hits"], requests["misses"]) == (0, 0)


def _small() -> tuple[str, int]:
    return hashlib.sha256(b"small").hexdigest(), 5
