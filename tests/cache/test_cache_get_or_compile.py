"""`get_or_compile` in one process: where NEFFs come from, what is remembered, and stores that do not work."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cache_kit import never, open_cache, parts, unprivileged

from cache_server import CacheError, NeffCache, Outcome, Phase, Waiting
from cache_server.leases import Lease, Owner, Vacant
from cache_server.leases.memory import MemoryRecords
from cache_server.leases.record import State, decode_record
from cache_server.manifest import Manifest
from cache_server.storage import Storage
from neuron_runtime.compiler.errors import CompileFailure, FailureKind


class Counted:
    """A compile that counts its calls, and gives other bytes each time."""

    def __init__(self, size: int = 1000, error: BaseException | None = None) -> None:
        self.calls = 0
        self._size = size
        self._error = error

    def __call__(self) -> bytes:
        self.calls += 1
        if self._error is not None:
            raise self._error
        return os.urandom(self._size)


def failing(kind: FailureKind = FailureKind.COMPILER_ERROR, text: str = "no such op: foo") -> Counted:
    return Counted(error=CompileFailure("the compiler says no", kind=kind, stderr=text))


def blobs(tmp: Path) -> list[Path]:
    return list((tmp / "shared").glob("*/blobs/sha256/*/*"))


def manifest_of(cache: NeffCache) -> Manifest:
    manifest = cache.peek(parts())
    assert manifest is not None
    return manifest


@pytest.fixture(params=["file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "shared") if request.param == "file" else f"memory://{uuid.uuid4().hex}"


def test_cold_then_local_then_shared(tmp_path: Path, url: str) -> None:
    compile_ = Counted()
    a, b = open_cache(tmp_path, "a", url=url), open_cache(tmp_path, "b", url=url)
    cold = a.get_or_compile(parts(), compile_, label="graph")
    warm = a.get_or_compile(parts(), never)
    shared = b.get_or_compile(parts(), never)
    local = b.get_or_compile(parts(), never)
    assert [r.outcome for r in (cold, warm, shared, local)] == ["compiled", "local_hit", "shared_hit", "local_hit"]
    assert {r.neff for r in (cold, warm, shared, local)} == {cold.neff}
    assert {r.key for r in (cold, warm, shared, local)} == {parts().key}
    assert cold.epoch == shared.epoch == 1
    assert shared.saved_seconds == pytest.approx(cold.compile_seconds)
    assert a.stats.to_json()["hits"] == 1
    assert (a.stats.misses, a.stats.compiles, a.stats.errors) == (1, 1, 0)
    assert (b.stats.local_hits, b.stats.shared_hits, b.stats.misses) == (1, 1, 0)
    assert b.stats.seconds_saved == pytest.approx(2 * cold.compile_seconds, abs=1e-5)


def test_threads_of_one_process_compile_once(tmp_path: Path, url: str) -> None:
    cache = open_cache(tmp_path, url=url)
    inside = threading.Event()
    neffs: list[bytes] = []

    def slow() -> bytes:
        assert not inside.is_set(), "two compiles at once"
        inside.set()
        time.sleep(0.1)
        return b"neff" * 100

    threads = [
        threading.Thread(target=lambda: neffs.append(cache.get_or_compile(parts(), slow).neff)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert neffs == [b"neff" * 100] * 8
    assert cache.stats.compiles == 1


def test_get_and_peek_never_compile(tmp_path: Path) -> None:
    a, b = open_cache(tmp_path, "a"), open_cache(tmp_path, "b")
    assert b.get(parts()) is None
    assert b.peek(parts()) is None
    neff = a.get_or_compile(parts(), Counted(), label="graph").neff
    hit = b.get(parts())
    assert hit is not None
    assert (hit.neff, hit.outcome) == (neff, Outcome.SHARED_HIT)
    assert [entry.label for entry in b.entries()] == ["graph"]


def test_manifest_tells_what_was_compiled_by_whom(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    before = time.time()
    cache.get_or_compile(parts(), Counted(size=77), label="graph")
    manifest = manifest_of(cache)
    assert manifest.parts == parts()
    assert manifest.files["module.neff"].size == 77
    assert manifest.producer.pid == os.getpid()
    assert manifest.producer.compiler == "cc 2.0"
    assert before - 1 <= manifest.producer.started_at <= time.time() + 1


def test_phases_are_announced_in_order(tmp_path: Path) -> None:
    seen: list[Phase] = []
    cache = open_cache(tmp_path)
    cache.on_phase = seen.append
    cache.get_or_compile(parts(), Counted())
    assert seen == list(Phase)


def test_compiler_error_is_remembered_with_its_text_age_and_origin(tmp_path: Path) -> None:
    a, b = open_cache(tmp_path, "a"), open_cache(tmp_path, "b")
    with pytest.raises(CompileFailure, match=r"^the compiler says no$"):
        a.get_or_compile(parts(), failing())
    with pytest.raises(CompileFailure, match="no such op: foo") as caught:
        b.get_or_compile(parts(), never)
    assert f"pid {os.getpid()}" in caught.value.message
    assert "0 s ago" in caught.value.message
    assert caught.value.kind is FailureKind.COMPILER_ERROR
    assert "NEURON_ENV_CACHE_RETRY_FAILURES" in (caught.value.hint or "")
    assert b.stats.failure_hits == 1
    assert b.get(parts()) is None


@pytest.mark.parametrize("kind", [kind for kind in FailureKind if kind is not FailureKind.COMPILER_ERROR])
def test_accidents_are_not_remembered(tmp_path: Path, kind: FailureKind) -> None:
    a, b = open_cache(tmp_path, "a"), open_cache(tmp_path, "b")
    with pytest.raises(CompileFailure):
        a.get_or_compile(parts(), failing(kind))
    assert a.peek(parts()) is None
    assert b.get_or_compile(parts(), Counted()).outcome is Outcome.COMPILED


@pytest.mark.parametrize("error", [RuntimeError("bug"), KeyboardInterrupt(), SystemExit(3), MemoryError()])
def test_any_other_exception_passes_through_and_frees_the_key(tmp_path: Path, error: BaseException) -> None:
    a = open_cache(tmp_path, "a", lease_seconds=3600.0)
    with pytest.raises(type(error)):
        a.get_or_compile(parts(), Counted(error=error))
    b = open_cache(tmp_path, "b", wait_seconds=0.0)
    assert b.get_or_compile(parts(), Counted()).outcome is Outcome.COMPILED


def test_remembered_failure_expires(tmp_path: Path) -> None:
    a, b = open_cache(tmp_path, "a", failure_ttl_seconds=1e-6), open_cache(tmp_path, "b")
    with pytest.raises(CompileFailure):
        a.get_or_compile(parts(), failing())
    result = b.get_or_compile(parts(), Counted())
    assert (result.outcome, result.epoch) == (Outcome.COMPILED, 2)
    assert manifest_of(b).failure is None


def test_failures_are_not_remembered_without_a_time_limit(tmp_path: Path) -> None:
    cache = open_cache(tmp_path, failure_ttl_seconds=0.0)
    with pytest.raises(CompileFailure):
        cache.get_or_compile(parts(), failing())
    assert cache.peek(parts()) is None


def test_remembered_failure_can_be_tried_again(tmp_path: Path) -> None:
    a, b = open_cache(tmp_path, "a"), open_cache(tmp_path, "b", retry_failures=True)
    with pytest.raises(CompileFailure):
        a.get_or_compile(parts(), failing())
    with pytest.raises(CompileFailure, match=r"^the compiler says no$"):
        b.get_or_compile(parts(), failing())
    assert manifest_of(b).epoch == 2
    assert b.get_or_compile(parts(), Counted()).outcome is Outcome.COMPILED
    assert open_cache(tmp_path, "c").get_or_compile(parts(), never).outcome is Outcome.SHARED_HIT


def flip(data: bytes) -> bytes:
    return data[:500] + bytes([data[500] ^ 4]) + data[501:]


@pytest.mark.parametrize("damage", [flip, lambda data: data[:-1], lambda data: b"", lambda data: data + b"x"])
def test_damaged_blob_is_set_aside_and_compiled_again(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    first = open_cache(tmp_path, "a").get_or_compile(parts(), Counted())
    [blob] = blobs(tmp_path)
    blob.write_bytes(damage(blob.read_bytes()))
    b = open_cache(tmp_path, "b")
    again = b.get_or_compile(parts(), Counted())
    assert (again.outcome, again.epoch) == (Outcome.COMPILED, 2)
    assert again.neff != first.neff
    assert b.stats.quarantined == 1
    assert open_cache(tmp_path, "c").get_or_compile(parts(), never).neff == again.neff


def test_missing_blob_is_compiled_again(tmp_path: Path) -> None:
    open_cache(tmp_path, "a").get_or_compile(parts(), Counted())
    [blob] = blobs(tmp_path)
    blob.unlink()
    b = open_cache(tmp_path, "b")
    assert b.get_or_compile(parts(), Counted()).outcome is Outcome.COMPILED
    assert b.stats.quarantined == 0


@pytest.mark.parametrize("garbage", [b"", b"{}", b"\0" * 5000])
def test_damaged_manifest_is_set_aside_and_healed_from_the_lease_record(tmp_path: Path, garbage: bytes) -> None:
    first = open_cache(tmp_path, "a").get_or_compile(parts(), Counted())
    [entry] = (tmp_path / "shared").glob("*/entries/default/*/*.json")
    entry.write_bytes(garbage)
    b = open_cache(tmp_path, "b")
    result = b.get_or_compile(parts(), never)
    assert (result.outcome, result.neff) == (Outcome.SHARED_HIT, first.neff)
    assert b.stats.quarantined == 1
    assert manifest_of(b).epoch == 1


@pytest.mark.parametrize("garbage", [b"", b"{}", b"\0" * 5000])
def test_damaged_lease_record_delays_by_one_lease_at_most(tmp_path: Path, garbage: bytes) -> None:
    open_cache(tmp_path, "a").get_or_compile(parts(), Counted())
    [entry] = (tmp_path / "shared").glob("*/entries/default/*/*.json")
    entry.unlink()
    for generation in (tmp_path / "shared").glob("*/leases/default/*/*/*"):
        generation.write_bytes(garbage)
    b = open_cache(tmp_path, "b", lease_seconds=0.2)
    assert b.get_or_compile(parts(), Counted()).outcome is Outcome.COMPILED


def test_lost_lease_records_cost_nothing(tmp_path: Path) -> None:
    open_cache(tmp_path, "a").get_or_compile(parts(), Counted())
    shutil.rmtree(next((tmp_path / "shared").glob("*/leases")))
    assert open_cache(tmp_path, "b").get_or_compile(parts(), never).outcome is Outcome.SHARED_HIT


def test_epoch_goes_on_where_lease_records_were_lost(tmp_path: Path) -> None:
    with pytest.raises(CompileFailure):
        open_cache(tmp_path, "a", failure_ttl_seconds=1e-6).get_or_compile(parts(), failing())
    shutil.rmtree(next((tmp_path / "shared").glob("*/leases")))
    b = open_cache(tmp_path, "b")
    assert b.get_or_compile(parts(), Counted()).epoch == 2
    assert manifest_of(b).failure is None


def test_damaged_local_neff_is_fetched_again(tmp_path: Path) -> None:
    cache = open_cache(tmp_path)
    neff = cache.get_or_compile(parts(), Counted()).neff
    cache.local.path(parts()).write_bytes(flip(neff))
    result = cache.get_or_compile(parts(), never)
    assert (result.outcome, result.neff) == (Outcome.SHARED_HIT, neff)
    assert cache.stats.quarantined == 1


def test_waiting_is_told_with_owner_phase_and_limit(tmp_path: Path) -> None:
    a = open_cache(tmp_path, "a")
    assert a.storage is not None
    owner = Owner("elsewhere", 42, "somebody")
    name = a.storage.store.record_name(parts().key)
    lease = Lease.claim(a.storage.records, name, Vacant(0, None), owner=owner, lease_seconds=60.0)
    lease.phase = "compiling"
    lease.renew()
    told: list[Waiting] = []
    a.progress = told.append
    waiting = threading.Event()

    def tell(sign: Waiting) -> None:
        told.append(sign)
        waiting.set()

    a.progress = tell
    threading.Thread(target=lambda: (waiting.wait(10), lease.release())).start()
    result = a.get_or_compile(parts(), Counted(), label="graph")
    assert result.outcome is Outcome.COMPILED
    assert result.waited_for == "pid 42 on elsewhere (user somebody)"
    assert result.waited_seconds > 0
    assert (told[0].owner, told[0].phase, told[0].label) == (result.waited_for, "compiling", "graph")
    assert 3500 < told[0].gives_up_in <= 3600
    assert (a.stats.waits, a.stats.takeovers) == (1, 0)


def test_long_compile_keeps_its_lease(tmp_path: Path) -> None:
    a = open_cache(tmp_path, "a", lease_seconds=0.15)
    assert a.storage is not None
    name = a.storage.store.record_name(parts().key)
    beats: list[int] = []

    def long_compile() -> bytes:
        end = time.monotonic() + 10
        while time.monotonic() < end and len(set(beats)) < 5:
            seen = a.storage.records.read(name)  # type: ignore[union-attr]
            assert seen is not None
            beats.append(decode_record(seen.data, key=parts().key).beat)
            time.sleep(0.01)
        return b"neff"

    assert a.get_or_compile(parts(), long_compile).outcome is Outcome.COMPILED
    assert len(set(beats)) >= 5
    seen = a.storage.records.read(name)
    assert seen is not None
    assert decode_record(seen.data, key=parts().key).state is State.SETTLED


def test_local_tier_alone_serves_too(tmp_path: Path) -> None:
    settings = replace(open_cache(tmp_path).settings, url=None)
    cache = NeffCache.open(settings=settings)
    assert cache.get_or_compile(parts(), Counted()).outcome is Outcome.COMPILED
    assert cache.get_or_compile(parts(), never).outcome is Outcome.LOCAL_HIT
    assert cache.peek(parts()) is None
    assert list(cache.entries()) == []


def test_cache_that_is_switched_off_touches_nothing(tmp_path: Path) -> None:
    cache = NeffCache.open(settings=replace(open_cache(tmp_path).settings, enabled=False))
    compile_ = Counted()
    for _ in range(2):
        assert cache.get_or_compile(parts(), compile_).outcome is Outcome.COMPILED_UNCACHED
    assert compile_.calls == 2
    assert cache.get(parts()) is None
    assert list(tmp_path.iterdir()) == []


def test_verify_always_compiles_and_compares(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache = open_cache(tmp_path, verify="always")
    neff = cache.get_or_compile(parts(), lambda: b"one").neff
    assert cache.get_or_compile(parts(), lambda: b"one").neff == neff
    assert cache.stats.nondeterministic == 0
    assert cache.get_or_compile(parts(), lambda: b"two").neff == neff
    assert cache.stats.nondeterministic == 1
    assert "other bytes" in caplog.text


class Inclusive(MemoryRecords):
    """Records on a store that ignores conditions."""

    def create_exclusive(self, name: str, data: bytes) -> str:
        with self._lock:
            return self._put(name, data)


def test_store_that_does_not_exclude_serves_without_leases_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def cache(host: str) -> NeffCache:
        opened = open_cache(tmp_path, host)
        assert opened.storage is not None
        opened.storage = Storage(opened.storage.store, Inclusive("memory://careless"))
        return opened

    a = cache("a")
    first = a.get_or_compile(parts(), Counted())
    assert first.outcome is Outcome.COMPILED
    assert "memory://careless does not exclude" in caplog.text
    caplog.clear()
    a.get_or_compile(parts("other"), Counted())
    assert "does not exclude" not in caplog.text, "once is enough"
    assert cache("b").get_or_compile(parts(), never).neff == first.neff


def broken_places(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "file").write_text("not a directory")
    return {"a-file-in-the-way": str(tmp_path / "file" / "shared"), "nowhere": "/proc/nowhere"}


@pytest.mark.parametrize("place", ["a-file-in-the-way", "nowhere"])
def test_store_that_cannot_be_made_does_not_stop_a_job(
    tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    cache = open_cache(tmp_path, url=broken_places(tmp_path)[place])
    result = cache.get_or_compile(parts(), Counted())
    assert result.outcome is Outcome.COMPILED_UNCACHED
    assert "cannot" in result.reason
    assert cache.stats.errors == 1
    assert cache.get_or_compile(parts(), never).outcome is Outcome.LOCAL_HIT
    assert "working without the shared cache" in caplog.text


def test_neither_tier_works_and_the_job_still_goes_on(tmp_path: Path) -> None:
    place = Path(broken_places(tmp_path)["nowhere"])
    settings = replace(open_cache(tmp_path).settings, url=str(place), local_dir=place)
    cache = NeffCache.open(settings=settings)
    compile_ = Counted()
    for _ in range(2):
        assert cache.get_or_compile(parts(), compile_).outcome is Outcome.COMPILED_UNCACHED
    assert compile_.calls == 2


def test_read_only_store_serves_hits_and_takes_nothing(public: Path) -> None:
    store = public / "store"
    kept = open_cache(public, "a", url=str(store)).get_or_compile(parts(), Counted()).neff
    for path in [store, *store.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    with unprivileged():
        cache = open_cache(public, "b", url=str(store))
        hit = cache.get_or_compile(parts(), never)
        miss = cache.get_or_compile(parts("other"), Counted())
        again = cache.get_or_compile(parts("other"), never)
    assert (hit.outcome, hit.neff) == (Outcome.SHARED_HIT, kept)
    assert miss.outcome is Outcome.COMPILED_UNCACHED
    assert "Permission denied" in miss.reason
    assert again.outcome is Outcome.LOCAL_HIT


def test_store_that_may_not_be_read_does_not_stop_a_job(public: Path) -> None:
    store = public / "store"
    open_cache(public, "a", url=str(store), permissions="private").get_or_compile(parts(), Counted())
    for path in [store, *store.rglob("*")]:
        if path.is_dir():
            path.chmod(0o311)
    for path in store.rglob("*.json"):
        path.chmod(0)
    with unprivileged():
        result = open_cache(public, "b", url=str(store)).get_or_compile(parts(), Counted())
    assert result.outcome is Outcome.COMPILED_UNCACHED
    assert "Permission denied" in result.reason


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"no small file system can be mounted here: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_full_disk_does_not_stop_a_job(tmp_path: Path, tiny_disk: Path) -> None:
    cache = open_cache(tmp_path, url=str(tiny_disk))
    result = cache.get_or_compile(parts(), Counted(size=1_000_000), label="large")
    assert result.outcome is Outcome.COMPILED_UNCACHED
    assert "No space left" in result.reason
    assert len(result.neff) == 1_000_000
    assert not list(tiny_disk.glob("*/staging/*")), "what did not fit is cleared away"
    small = open_cache(tmp_path, "b", url=str(tiny_disk)).get_or_compile(parts("small"), Counted(size=1000))
    assert small.outcome is Outcome.COMPILED


def test_disk_that_fills_up_during_the_compile_does_not_stop_a_job(tmp_path: Path, tiny_disk: Path) -> None:
    cache = open_cache(tmp_path, url=str(tiny_disk), lease_seconds=0.15)

    def fill() -> bytes:
        try:
            with (tiny_disk / "ballast").open("wb") as ballast:
                while True:
                    ballast.write(b"x" * 4096)
                    ballast.flush()
        except OSError:
            return b"neff" * 100

    result = cache.get_or_compile(parts(), fill)
    assert result.outcome is Outcome.COMPILED_UNCACHED
    assert cache.get_or_compile(parts(), never).outcome is Outcome.LOCAL_HIT


def test_each_store_error_is_warned_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    cache = open_cache(tmp_path, url="/proc/nowhere")
    cache.complain(CacheError("first"))
    cache.complain(CacheError("first"))
    cache.complain(CacheError("second"))
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == ["first", "second"]
    assert cache.stats.errors == 3


def test_open_without_arguments_works_for_one_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("NEURON", "TORCH_NEURONX"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    arguments: dict[str, Any] = {}
    assert NeffCache.open(**arguments).get_or_compile(parts(), Counted()).outcome is Outcome.COMPILED
    assert NeffCache.open().get_or_compile(parts(), never).outcome is Outcome.LOCAL_HIT
    assert {path.name for path in (tmp_path / "neuron-env").iterdir()} == {"local", "shared"}
