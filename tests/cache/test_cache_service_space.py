"""Eviction, collection and the index in real processes of the service."""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cache_kit import eventually, parts
from service_kit import Answer, Service, entries, manifest

from cache_server.administration.pins import pin
from cache_server.administration.snapshot import take_snapshot
from cache_server.leases.owner import Owner
from cache_server.manifest import Blob
from cache_server.storage import open_storage
from cache_server.store import LAYOUT, blob_path
from cache_server.trust.principal import Scope
from cache_server.trust.tokens import TokenBook

pytestmark = pytest.mark.fleet

MIB = 1 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("a small file system needs root to mount a tmpfs")
    made = subprocess.run([mount, "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {made.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@contextlib.contextmanager
def serving(store: Path, tmp_path: Path, *arguments: str, name: str = "r1") -> Iterator[Service]:
    state = str(tmp_path / f"state-{name}")
    service = Service(store, tmp_path / f"{name}.log", "--state-dir", state, *arguments)
    try:
        yield service
    finally:
        service.close()


def publish(service: Service, ir: str, content: bytes) -> tuple[str, Answer]:
    """Stores one entry like a client: its blob, then its manifest. The key, and the last answer."""
    blob = Blob(hashlib.sha256(content).hexdigest(), len(content))
    answer = service.request("PUT", f"/v1/namespaces/default/blobs/{blob.sha256}", content)
    wanted = manifest(parts(ir), blob)
    if answer.status in (200, 201):
        answer = service.request("PUT", entries(wanted.key), wanted.encode())
    return wanted.key, answer


def content_of(number: int, size: int) -> bytes:
    return hashlib.sha256(str(number).encode()).digest() * (size // 32)


def assert_whole(store: Path) -> int:
    """No manifest without its blobs; the number of entries."""
    snapshot = take_snapshot(open_storage(str(store)))
    assert not snapshot.references() - snapshot.blobs.keys()
    return len(snapshot.entries)


def ingest(service: Service, store: Path, limit: int) -> None:
    """Twice what fits, by four writers, while readers use whatever is there; every answer is a good one."""
    size = limit // 24
    keys: list[str] = []
    done = threading.Event()

    def read() -> int:
        hits = 0
        while not done.is_set():
            for key in keys[-4:]:
                answer = service.get(entries(key))
                assert answer.status in (200, 404)
                if answer.status == 200:
                    hits += 1
                    sha256 = answer.json()["files"]["module.neff"]["sha256"]
                    assert service.get(f"/v1/namespaces/default/blobs/{sha256}").status in (200, 404)
        return hits

    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        reader = pool.submit(read)
        try:
            writers = [pool.submit(publish, service, f"graph {n}", content_of(n, size)) for n in range(48)]
            for writer in writers:
                key, answer = writer.result()
                assert answer.status in (200, 201), answer.data
                keys.append(key)
        finally:
            done.set()
        assert reader.result() > 0
    assert assert_whole(store) >= 12
    assert service.get(entries(keys[-1])).status == 200
    lines = service.logged()
    assert not [line for line in lines if "No space left" in str(line)]


def test_ingest_beyond_the_disk_evicts_and_never_fills_it(small_disk: Path, tmp_path: Path) -> None:
    with serving(small_disk / "store", tmp_path) as service:
        ingest(service, small_disk / "store", 8 * MIB)
        stats = service.get("/v1/stats").json()
        assert stats["recent_evictions"]
        assert b"neuron_env_cache_evicted_bytes_total" in service.get("/metrics").data


def test_ingest_beyond_the_capacity_evicts_and_keeps_it(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with serving(store, tmp_path, "--capacity", "4MiB") as service:
        ingest(service, store, 4 * MIB)
        totals = service.get("/v1/stats").json()["totals"]
        assert totals["capacity_bytes"] == 4 * MIB
        assert totals["bytes"] + totals["reserved_bytes"] <= 4 * MIB + 48 * 2000
    size = sum(path.stat().st_size for path in (store / "neuron-env-cache.v1" / "blobs").rglob("*") if path.is_file())
    assert size <= 4 * MIB


def test_two_replicas_ingest_beyond_the_disk(small_disk: Path, tmp_path: Path) -> None:
    # A replica does not know what the other one has promised: so much more has to stay free.
    store, keep = small_disk / "store", ("--keep-free", "1.5MiB")
    with serving(store, tmp_path, *keep) as one, serving(store, tmp_path, *keep, name="r2") as two:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            writers = [
                pool.submit(publish, (one, two)[n % 2], f"graph {n}", content_of(n, 8 * MIB // 24)) for n in range(40)
            ]
            statuses = [writer.result()[1].status for writer in writers]
        assert set(statuses) <= {200, 201, 507}
        assert statuses.count(507) <= 4, statuses
        assert assert_whole(store) >= 10
        assert not [line for service in (one, two) for line in service.logged() if "No space left" in str(line)]


def test_a_store_full_of_pins_answers_507_before_the_body(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with serving(store, tmp_path, "--capacity", "1MiB") as service:
        key, answer = publish(service, "kept", content_of(0, 700_000))
        assert answer.status == 201
        pin(open_storage(str(store)).store, key, Owner.here())
        _, refused = publish(service, "new", content_of(1, 700_000))
        assert (refused.status, refused.slug) == (507, "no-space")
        _, refused = publish(service, "huge", content_of(2, 2 * MIB))
        assert (refused.status, refused.slug) == (507, "no-space")
        assert service.get(entries(key)).status == 200


def test_the_index_may_be_thrown_away_under_a_running_service(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with serving(store, tmp_path) as service:
        first, _ = publish(service, "a", b"a" * 1000)
        for path in (tmp_path / "state-r1").glob("index*"):
            path.unlink()
        assert service.get(entries(first)).status == 200
        second, answer = publish(service, "b", b"b" * 1000)
        assert answer.status == 201

        def listed() -> set[str]:
            return {it["key"] for it in service.get("/v1/namespaces/default/entries").json()["entries"]}

        eventually(lambda: listed() == {first, second}, "the store is looked through again")


def test_a_damaged_index_does_not_keep_the_service_from_starting(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with serving(store, tmp_path) as service:
        key, _ = publish(service, "a", b"a" * 1000)
    (tmp_path / "state-r1" / "index.sqlite").write_bytes(b"damaged" * 1000)
    with serving(store, tmp_path) as service:
        assert service.get(entries(key)).status == 200
        eventually(
            lambda: service.get("/v1/stats").json()["totals"]["entries"] == 1, "the store is looked through again"
        )


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_one_of_two_replicas_collects_and_the_other_takes_over(tmp_path: Path, end: signal.Signals) -> None:
    store = tmp_path / "store"

    def collects(service: Service) -> bool:
        return bool(service.get("/v1/stats").json()["totals"]["collects"])

    with serving(store, tmp_path) as one:
        eventually(lambda: collects(one), "the only replica collects")
        with serving(store, tmp_path, name="r2") as two:
            assert not collects(two)
            one.process.send_signal(end)
            assert one.wait() == (0 if end is signal.SIGTERM else -end)
            eventually(lambda: collects(two), "the other takes over")


def test_collecting_on_request_and_trying_it(tmp_path: Path) -> None:
    store = tmp_path / "store"
    kept = open_storage(str(store)).store
    # As jobs left them that used the directory itself, long ago.
    for number in range(3):
        blob = kept.put_blob(content_of(number, 64_000))
        kept.put_manifest(manifest(parts(f"old {number}"), blob))
        # A blob of the last hour would stay: it may be of a publish on its way.
        os.utime(store / LAYOUT / blob_path(blob.sha256), (1000.0, 1000.0))
    token, _ = TokenBook(kept.backend).create("root", Scope.ADMIN, None, now=time.time(), created_by="a test")
    admin = {"Authorization": f"Bearer {token.reveal()}"}
    with serving(store, tmp_path, "--anonymous", "write", "--max-age", "30d") as service:
        key, _ = publish(service, "new", content_of(9, 64_000))
        # Without credentials nobody is an administrator.
        assert service.post("/v1/gc", {"dry_run": True}).status == 403
        tried = service.post("/v1/gc", {"dry_run": True}, **admin).json()
        assert assert_whole(store) == 4
        done = service.post("/v1/gc", {}, **admin).json()
        assert assert_whole(store) == 1
        again = service.post("/v1/gc", {}, **admin).json()
        assert service.get(entries(key)).status == 200
    assert (tried["entries"], tried["blobs"], tried["freed_bytes"] > 3 * 64_000) == (3, 3, True)
    assert done == {**tried, "dry_run": False}
    assert (again["entries"], again["blobs"], again["freed_bytes"]) == (0, 0, 0)


def test_uses_survive_the_service_that_saw_them(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with serving(store, tmp_path) as service:
        key, _ = publish(service, "a", b"a" * 1000)
        for _ in range(3):
            assert service.get(entries(key)).status == 200
        service.terminate()
        assert service.wait() == 0
    with serving(store, tmp_path, name="r2") as service:

        def used() -> bool:
            listed = service.get("/v1/namespaces/default/entries?sort=used").json()["entries"]
            return bool(listed) and listed[0]["used_at"] > 1e9

        eventually(used, "the other replica knows of the uses")
