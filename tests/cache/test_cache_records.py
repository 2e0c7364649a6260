"""Lease records exclude: on a directory, in memory, between processes; and the probe finds stores where they do not."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import uuid
from pathlib import Path

import pytest

from cache_server.backends.posix import PosixBackend
from cache_server.backends.s3bucket import S3Bucket
from cache_server.errors import ConflictError, NotExclusiveError, StoreError
from cache_server.leases.memory import MemoryRecords
from cache_server.leases.posix import PosixRecords
from cache_server.leases.probe import probe
from cache_server.leases.records import RecordStore, Versioned
from cache_server.leases.s3 import S3Records
from cache_server.permissions import permissions_named

NAME = "default/ab/key"


def posix_records(root: Path) -> PosixRecords:
    return PosixRecords(PosixBackend(root, permissions_named("group")))


@pytest.fixture(params=["posix", "memory", "s3"])
def records(request: pytest.FixtureRequest, tmp_path: Path) -> RecordStore:
    if request.param == "posix":
        return posix_records(tmp_path)
    if request.param == "s3":
        return S3Records(S3Bucket(request.getfixturevalue("s3_url")))
    return MemoryRecords.at(f"memory://{uuid.uuid4().hex}")


def content(records: RecordStore, name: str = NAME) -> bytes | None:
    seen = records.read(name)
    return None if seen is None else seen.data


def test_record_is_created_once(records: RecordStore) -> None:
    assert records.read(NAME) is None
    version = records.create_exclusive(NAME, b"one")
    with pytest.raises(ConflictError):
        records.create_exclusive(NAME, b"two")
    assert records.read(NAME) == Versioned(b"one", version)


def test_only_the_current_version_can_be_changed(records: RecordStore) -> None:
    first = records.create_exclusive(NAME, b"one")
    second = records.compare_and_swap(NAME, first, b"two")
    for stale in (lambda: records.compare_and_swap(NAME, first, b"late"), lambda: records.delete_if(NAME, first)):
        with pytest.raises(ConflictError):
            stale()
    assert records.read(NAME) == Versioned(b"two", second)


@pytest.mark.parametrize("behind", range(1, 8))
def test_writer_that_was_stopped_for_long_cannot_change_anything(records: RecordStore, behind: int) -> None:
    stale = version = records.create_exclusive(NAME, b"start")
    for number in range(behind):
        version = records.compare_and_swap(NAME, version, b"beat %d" % number)
    with pytest.raises(ConflictError):
        records.compare_and_swap(NAME, stale, b"late")
    assert records.read(NAME) == Versioned(b"beat %d" % (behind - 1), version)
    version = records.compare_and_swap(NAME, version, b"next")
    assert content(records) == b"next"


def test_deleted_record_can_be_made_again_and_old_versions_stay_dead(records: RecordStore) -> None:
    first = records.create_exclusive(NAME, b"one")
    records.delete_if(NAME, first)
    assert records.read(NAME) is None
    again = records.create_exclusive(NAME, b"two")
    assert again != first
    with pytest.raises(ConflictError):
        records.compare_and_swap(NAME, first, b"late")
    assert content(records) == b"two"


def test_purge_leaves_nothing(records: RecordStore, tmp_path: Path) -> None:
    records.create_exclusive(NAME, b"one")
    records.purge(NAME)
    assert records.read(NAME) is None
    assert not (tmp_path / "leases" / NAME).exists()


def test_superseded_generations_do_not_pile_up(tmp_path: Path) -> None:
    records = posix_records(tmp_path)
    version = records.create_exclusive(NAME, b"start")
    for number in range(50):
        version = records.compare_and_swap(NAME, version, b"%d" % number)
    assert len(list((tmp_path / "leases" / NAME).iterdir())) == 2
    assert list((tmp_path / "staging").iterdir()) == []


def test_file_that_is_no_generation_is_ignored(tmp_path: Path) -> None:
    records = posix_records(tmp_path)
    records.create_exclusive(NAME, b"one")
    for name in (".nfs000000000000001", "9" * 15, "x" * 16, "٣" * 16):
        (tmp_path / "leases" / NAME / name).write_text("noise")
    assert content(records) == b"one"


def test_claim_that_a_stale_directory_listing_allowed_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hazard of removing generations: a number that is free again. The claimant must notice and give it up."""
    records = posix_records(tmp_path)
    stale = version = records.create_exclusive(NAME, b"start")
    for number in range(5):
        version = records.compare_and_swap(NAME, version, b"%d" % number)
    names = sorted(path.name for path in (tmp_path / "leases" / NAME).iterdir())
    assert f"{int(stale) + 1:016d}" not in names
    with pytest.raises(ConflictError, match="past generation"):
        records.compare_and_swap(NAME, stale, b"late")
    assert sorted(path.name for path in (tmp_path / "leases" / NAME).iterdir()) == names


def add_words(records: RecordStore, writer: str, count: int) -> None:
    """Adds `count` words of its own to those in the record, against whoever else does."""
    for number in range(count):
        word = f"{writer}{number}".encode()
        while True:
            seen = records.read(NAME)
            assert seen is not None
            if word in seen.data.split():
                break
            with contextlib.suppress(ConflictError):
                records.compare_and_swap(NAME, seen.version, seen.data + b" " + word)


def words_of(writers: list[str], count: int) -> list[str]:
    return sorted(f"{writer}{number}" for writer in writers for number in range(count))


def test_no_change_of_many_threads_is_lost(records: RecordStore) -> None:
    records.create_exclusive(NAME, b"")
    threads = [threading.Thread(target=add_words, args=(records, writer, 8)) for writer in "abcdef"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted((content(records) or b"").decode().split()) == words_of(list("abcdef"), 8)


def test_no_change_of_many_processes_is_lost(tmp_path: Path) -> None:
    records = posix_records(tmp_path)
    records.create_exclusive(NAME, b"")
    program = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from pathlib import Path\nfrom test_cache_records import add_words, posix_records\n"
        "add_words(posix_records(Path(sys.argv[1])), sys.argv[2], 12)\n"
    )
    children = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path), writer]) for writer in "abcd"]
    assert [child.wait(timeout=60) for child in children] == [0, 0, 0, 0]
    assert sorted((content(records) or b"").decode().split()) == words_of(list("abcd"), 12)


def test_probe_accepts_records_that_exclude_and_leaves_no_trace(records: RecordStore, tmp_path: Path) -> None:
    probe(records)
    assert not list(tmp_path.glob("leases/probe/*/*"))


class Careless(MemoryRecords):
    """What many S3 servers do: conditions are accepted and ignored."""

    def create_exclusive(self, name: str, data: bytes) -> str:
        with self._lock:
            return self._put(name, data)


class CarelessSwap(MemoryRecords):
    def compare_and_swap(self, name: str, version: str, data: bytes) -> str:
        with self._lock:
            return self._put(name, data)


class Racy(MemoryRecords):
    """Looks, and then writes: right one after the other, wrong at once."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._meet = threading.Barrier(4)

    def compare_and_swap(self, name: str, version: str, data: bytes) -> str:
        with self._lock:
            self._expect(name, version)
        if data.startswith(b"racer"):
            self._meet.wait()
        with self._lock:
            return self._put(name, data)


class Forgetful(MemoryRecords):
    def read(self, name: str) -> Versioned | None:
        return None


@pytest.mark.parametrize("kind", [Careless, CarelessSwap, Racy, Forgetful])
def test_probe_refuses_a_store_that_does_not_exclude_and_names_it(kind: type[MemoryRecords]) -> None:
    with pytest.raises(NotExclusiveError, match="memory://careless") as caught:
        probe(kind("memory://careless"))
    assert caught.value.hint


def test_probe_of_a_store_that_goes_away_meanwhile_proves_nothing(tmp_path: Path) -> None:
    root = tmp_path / "store"

    class Vanishing(PosixRecords):
        def compare_and_swap(self, name: str, version: str, data: bytes) -> str:
            try:
                return super().compare_and_swap(name, version, data)
            finally:
                if data == b"probe 4\n":
                    root.rename(tmp_path / "away")
                    root.write_text("in the way")

    with pytest.raises(StoreError) as caught:
        probe(Vanishing(PosixBackend(root, permissions_named("group"))))
    assert not isinstance(caught.value, NotExclusiveError)


def test_probe_refuses_a_file_system_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises((NotExclusiveError, StoreError)):
        probe(posix_records(tmp_path))
