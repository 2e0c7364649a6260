"""Jobs: what 64 ranks write down, prefetch brings; and push publishes what only this host has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cache_kit import DEADLINE, eventually, never, open_cache, parts

from cache_server import CacheError, CacheSettings, NeffCache, Outcome, StoreError
from cache_server.administration.removal import remove_entry
from cache_server.administration.snapshot import take_snapshot
from cache_server.jobs.journal import JobJournal
from cache_server.jobs.record import KEY_LIMIT, JobRecord, decode_record, merge
from cache_server.jobs.shelf import BackendShelf, check_part, fresh_part, read_job, shelf_of
from cache_server.leases.owner import Owner
from cache_server.storage import open_storage
from cache_server.transfer.prefetch import prefetch
from cache_server.transfer.push import push
from cache_server.transfer.report import Fate, Report

WORKER = """
import os, sys
from pathlib import Path
import cache_server.flight, filelock  # here once, instead of in every child
from cache_server import CacheSettings, KeyParts, NeffCache
url, local, ranks = sys.argv[1:]
for rank in range(int(ranks)):
    if os.fork() == 0:
        cache = NeffCache.open(settings=CacheSettings(url, Path(local), job="train"))
        for number in range(3):
            parts = KeyParts.of(
                ir=b"%d" % (number + rank), compiler="cc", compiler_version="2.0", flags=[], target="trn2", lnc=2
            )
            cache.get_or_compile(parts, lambda: parts.key.encode(), label=f"graph {number + rank}")
        cache.close_job()
        os._exit(0)
codes = [os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(int(ranks))]
sys.exit(max(codes))
"""


def shelf(tmp_path: Path) -> BackendShelf:
    found = shelf_of(open_storage(str(tmp_path / "shared")))
    assert isinstance(found, BackendShelf)
    return found


def fates(report: Report) -> dict[str, str]:
    return {item.name: item.fate.value for item in report.items}


def test_every_rank_writes_down_its_keys_and_nobody_waits(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", WORKER, str(tmp_path / "shared"), str(tmp_path / "local"), "16"],
        timeout=DEADLINE,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    job = read_job(shelf(tmp_path), "train")
    assert (job.processes, job.hosts, len(job.keys)) == (16, 1, 18)
    assert set(job.keys.values()) == {f"graph {number}" for number in range(18)}
    other = open_cache(tmp_path, "other")
    assert other.storage is not None
    report = prefetch(other.storage.store, other.local, job.keys)
    assert report.counts == {"moved": 18, "present": 0, "skipped": 0, "failed": 0}


def test_process_writes_in_the_background_and_at_its_end(tmp_path: Path) -> None:
    program = (
        "from cache_server import *; import sys; c = NeffCache.open();"
        "p = lambda n: KeyParts.of(ir=n, compiler='c', compiler_version='1', flags=[], target='trn2', lnc=2);"
        "c.get_or_compile(p(b'1'), lambda: b'x', label='first');"
        "print('made', flush=True); sys.stdin.read();"
        "c.get_or_compile(p(b'2'), lambda: b'x', label='last')"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={
            **os.environ,
            "NEURON_ENV_CACHE_URL": str(tmp_path / "shared"),
            "NEURON_ENV_CACHE_LOCAL_DIR": str(tmp_path / "local"),
            "NEURON_ENV_JOB": "train",
        },
    )
    with child:
        assert child.stdin is not None
        place = tmp_path / "shared" / "neuron-env-cache.v1" / "jobs" / "default" / "train"
        eventually(lambda: place.exists() and list(place.iterdir()), "the first batch is written")
        assert set(read_job(shelf(tmp_path), "train").keys.values()) == {"first"}
        child.stdin.close()
        assert child.wait(DEADLINE) == 0
    assert set(read_job(shelf(tmp_path), "train").keys.values()) == {"first", "last"}


def test_record_is_bounded(tmp_path: Path) -> None:
    journal = JobJournal(shelf(tmp_path), "train", Owner("host", 1, "user"))
    for number in range(KEY_LIMIT + 5):
        journal.record(f"{number:064x}", "x" * 300)
    assert journal.flush()
    job = read_job(shelf(tmp_path), "train")
    assert (len(job.keys), job.dropped, len(job.keys["0" * 64])) == (KEY_LIMIT, 5, 200)


def test_store_that_cannot_be_written_is_tried_again(tmp_path: Path) -> None:
    errors: list[StoreError] = []
    journal = JobJournal(shelf(tmp_path), "train", Owner("host", 1, "user"), complain=errors.append)
    (tmp_path / "shared").write_text("in the way")
    journal.record("0" * 64, "graph")
    assert not journal.flush()
    assert len(errors) == 1
    (tmp_path / "shared").unlink()
    assert journal.flush()
    assert read_job(shelf(tmp_path), "train").keys == {"0" * 64: "graph"}


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 129, "a b"])
def test_names_that_are_no_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(CacheError):
        CacheSettings("memory://x", tmp_path, job=name)
    with pytest.raises(CacheError):
        read_job(shelf(tmp_path), name)
    with pytest.raises(ValueError):
        check_part(f"{name}/")


def test_name_of_a_part_holds_whatever_the_host_is_called() -> None:
    for host in ("", "..", "a/b", "ünïcode", "h" * 500):
        assert check_part(fresh_part(host, 7))


@pytest.mark.parametrize("content", [b"", b"{}", b'{"schema": 2}', b"\xff", b"[]"])
def test_damaged_record_is_passed_over(tmp_path: Path, content: bytes) -> None:
    place = shelf(tmp_path)
    place.put("train", "bad", content)
    place.put("train", "good", JobRecord("train", "h", 1, "u", 1.0, 2.0, {"0" * 64: "x"}).encode())
    assert read_job(place, "train").keys == {"0" * 64: "x"}
    assert place.names() == ["train"]


def test_record_with_something_that_is_no_key_is_refused() -> None:
    document = json.loads(JobRecord("train", "h", 1, "u", 1.0, 2.0).encode())
    with pytest.raises(ValueError):
        decode_record(json.dumps({**document, "keys": {"../../etc": ""}}).encode())


def test_labels_of_a_job_are_the_latest_that_say_something() -> None:
    a, b = "a" * 64, "b" * 64
    job = merge(
        "train",
        [
            JobRecord("train", "h2", 2, "u", 5.0, 9.0, {a: "new", b: ""}),
            JobRecord("train", "h1", 1, "u", 1.0, 2.0, {a: "old", b: "name"}, dropped=3),
        ],
    )
    assert job is not None
    assert job.keys == {a: "new", b: "name"}
    assert (job.hosts, job.started_at, job.updated_at, job.dropped) == (2, 1.0, 9.0, 3)


def test_prefetch_says_what_is_missing(tmp_path: Path) -> None:
    a = open_cache(tmp_path, "a", job="train")
    for name in ("one", "two", "gone"):
        a.get_or_compile(parts(name), lambda: b"neff" * 10, label=name)
    a.close_job()
    assert a.storage is not None
    [entry] = [it for it in take_snapshot(a.storage).entries if it.manifest.label == "gone"]
    assert remove_entry(a.storage, entry)
    b = open_cache(tmp_path, "b")
    b.get_or_compile(parts("two"), never)
    assert b.storage is not None
    job = read_job(shelf_of(b.storage), "train")
    planned = prefetch(b.storage.store, b.local, job.keys, dry_run=True)
    assert b.local.get(parts("one")) is None
    done = prefetch(b.storage.store, b.local, job.keys)
    assert fates(planned) == fates(done) == {"one": "moved", "two": "present", "gone": "failed"}
    assert done.moved_bytes == 40
    assert b.get_or_compile(parts("one"), never).outcome is Outcome.LOCAL_HIT


def test_prefetch_passes_over_damage(tmp_path: Path) -> None:
    a = open_cache(tmp_path, "a")
    a.get_or_compile(parts(), lambda: b"neff" * 10, label="graph")
    [blob] = [p for p in (tmp_path / "shared" / "neuron-env-cache.v1" / "blobs").rglob("*") if p.is_file()]
    blob.write_bytes(b"other" * 8)
    b = open_cache(tmp_path, "b")
    assert b.storage is not None
    report = prefetch(b.storage.store, b.local, {parts().key: "graph"})
    assert fates(report) == {"graph": "failed"}
    assert not b.local.holds(parts().key)


def test_push_publishes_what_was_compiled_without_the_store(tmp_path: Path) -> None:
    blocked = tmp_path / "shared"
    blocked.write_text("in the way")
    a = open_cache(tmp_path, "a")
    assert a.get_or_compile(parts("one"), lambda: b"1" * 10, label="one").outcome is Outcome.COMPILED_UNCACHED
    blocked.unlink()
    a.get_or_compile(parts("two"), lambda: b"2" * 10, label="two")
    assert a.storage is not None
    report = push(a.local, a.storage.store, dry_run=True)
    assert fates(report) == {"one": "moved", "two": "present"}
    assert a.peek(parts("one")) is None
    assert fates(push(a.local, a.storage.store)) == {"one": "moved", "two": "present"}
    hit = open_cache(tmp_path, "b").get_or_compile(parts("one"), never)
    assert (hit.outcome, hit.neff) == (Outcome.SHARED_HIT, b"1" * 10)
    assert fates(push(a.local, a.storage.store)) == {"one": "present", "two": "present"}


def test_push_of_a_job_is_of_its_keys_alone(tmp_path: Path) -> None:
    alone = NeffCache.open(settings=CacheSettings(None, tmp_path / "local-a"))
    for name in ("one", "two"):
        alone.get_or_compile(parts(name), lambda: b"neff", label=name)
    shared = open_cache(tmp_path, "a")
    assert shared.storage is not None
    report = push(shared.local, shared.storage.store, only={parts("two").key})
    assert fates(report) == {"two": "moved"}
    assert shared.peek(parts("one")) is None


def test_push_leaves_out_what_is_damaged_here(tmp_path: Path) -> None:
    alone = NeffCache.open(settings=CacheSettings(None, tmp_path / "local-a"))
    alone.get_or_compile(parts("torn"), lambda: b"neff", label="torn")
    alone.get_or_compile(parts("odd"), lambda: b"neff", label="odd")
    alone.local.path(parts("torn")).write_bytes(b"ne")
    alone.local.path(parts("odd")).with_name(f"{parts('odd').short_key}.neff.json").write_text("{}")
    shared = open_cache(tmp_path, "a")
    assert shared.storage is not None
    report = push(shared.local, shared.storage.store)
    assert fates(report) == {"torn": "failed"}
    assert list(shared.entries()) == []
    assert shared.local.get(parts("odd")) is not None  # a NEFF is as good without a description
    assert [item.fate for item in report.items] == [Fate.FAILED]


def test_bucket_keeps_jobs_and_takes_what_is_pushed(s3_url: str, tmp_path: Path) -> None:
    a = open_cache(tmp_path, "a", url=s3_url, job="train")
    a.get_or_compile(parts("one"), lambda: b"1" * 10, label="one")
    a.close_job()
    alone = NeffCache.open(settings=CacheSettings(None, tmp_path / "local-a"))
    alone.get_or_compile(parts("two"), lambda: b"2" * 10, label="two")
    assert a.storage is not None
    assert fates(push(a.local, a.storage.store)) == {"one": "present", "two": "moved"}
    b = open_cache(tmp_path, "b", url=s3_url)
    assert b.storage is not None
    shelf_there = shelf_of(b.storage)
    assert shelf_there.names() == ["train"]
    job = read_job(shelf_there, "train")
    assert fates(prefetch(b.storage.store, b.local, job.keys)) == {"one": "moved"}
    [(part, _)] = shelf_there.records("train")
    shelf_there.remove("train", part)
    assert shelf_there.names() == []
    assert b.get_or_compile(parts("two"), never).outcome is Outcome.SHARED_HIT
