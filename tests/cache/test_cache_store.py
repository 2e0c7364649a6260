"""The store: whole objects or none, one manifest a key, damage set aside."""

from __future__ import annotations

import os
import re
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from cache_kit import parts, unprivileged
from test_cache_manifest import FAILURE, NEFF

from cache_server.backends import Backend
from cache_server.backends.posix import PosixBackend
from cache_server.errors import CacheError, StoreError
from cache_server.manifest import Blob
from cache_server.permissions import permissions_named
from cache_server.storage import open_storage
from cache_server.store import Put, Store


@pytest.fixture
def store(backend: Backend) -> Store:
    return Store(backend)


def paths(backend: Backend, prefix: str) -> list[str]:
    return sorted(backend.walk(prefix))


def test_backend_reads_what_was_written_last(backend: Backend) -> None:
    assert backend.read("a/b", 100) is None
    backend.write("a/b", b"one")
    backend.write("a/b", b"two")
    assert backend.read("a/b", 100) == b"two"
    assert paths(backend, "a") == ["a/b"]


def test_backend_creates_once(backend: Backend) -> None:
    assert backend.create("a", b"one")
    assert not backend.create("a", b"two")
    assert backend.read("a", 100) == b"one"


def test_backend_removes_only_what_was_meant(backend: Backend) -> None:
    backend.write("a", b"one")
    assert not backend.remove_if("a", b"other")
    assert not backend.remove_if("missing", b"one")
    assert backend.read("a", 100) == b"one"
    assert backend.remove_if("a", b"one")
    assert backend.read("a", 100) is None


def test_backend_moves(backend: Backend) -> None:
    backend.write("a", b"one")
    assert backend.move("a", "b/c")
    assert not backend.move("a", "b/d")
    assert paths(backend, "b") == ["b/c"]


def test_backend_reads_no_more_than_asked(backend: Backend) -> None:
    backend.write("a", b"x" * 1000)
    data = backend.read("a", 10)
    assert data is not None
    assert len(data) == 11


def test_of_many_creators_one_wins(backend: Backend) -> None:
    wins: list[int] = []
    for round_ in range(20):
        start = threading.Barrier(8)

        def create(number: int, path: str = f"race/{round_}/new/directories", start: threading.Barrier = start) -> None:
            start.wait()
            if backend.create(path, b"%d" % number):
                wins.append(number)

        threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(wins) == round_ + 1
        assert backend.read(f"race/{round_}/new/directories", 10) == b"%d" % wins[-1]


def test_directory_that_another_writer_makes_in_between_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, late = os.link, [True]

    def outrun(source: str, target: str) -> None:
        if late:
            late.clear()
            Path(target).parent.mkdir()
            raise FileNotFoundError(2, "No such file or directory")
        link(source, target)

    monkeypatch.setattr(os, "link", outrun)
    backend = PosixBackend(tmp_path / "store", permissions_named("group"))
    assert backend.create("new/a", b"one")
    assert backend.read("new/a", 100) == b"one"


def test_blob_comes_back_verified(store: Store) -> None:
    blob = store.put_blob(b"content")
    assert store.read_blob(blob) == b"content"
    assert store.put_blob(b"content") == blob
    assert store.read_blob(Blob("cd" * 32, 7)) is None
    assert store.quarantined == 0


@pytest.mark.parametrize("damage", [b"", b"conten", b"cOntent", b"content and more"])
def test_damaged_blob_is_set_aside_and_can_be_written_again(store: Store, damage: bytes) -> None:
    blob = store.put_blob(b"content")
    [path] = paths(store.backend, "blobs")
    store.backend.write(path, damage)
    assert store.read_blob(blob) is None
    assert paths(store.backend, "blobs") == []
    assert len(paths(store.backend, "quarantine")) == store.quarantined == 1
    assert store.read_blob(store.put_blob(b"content")) == b"content"


def test_blob_written_over_a_damaged_one_heals_it(store: Store) -> None:
    blob = store.put_blob(b"content")
    [path] = paths(store.backend, "blobs")
    store.backend.write(path, b"damaged")
    store.put_blob(b"content")
    assert store.read_blob(blob) == b"content"


def test_manifest_is_published_once(store: Store) -> None:
    other = replace(NEFF, files={"module.neff": Blob("cd" * 32, 5)})
    assert store.put_manifest(NEFF) is Put.CREATED
    assert store.put_manifest(NEFF) is Put.SAME
    assert store.put_manifest(replace(NEFF, epoch=9)) is Put.SAME
    assert store.put_manifest(other) is Put.OTHER
    assert store.read_manifest(NEFF.key) == NEFF
    assert list(store.entries()) == [NEFF]


def test_earlier_epoch_gives_way_and_a_later_one_does_not(store: Store) -> None:
    later = replace(NEFF, files={"module.neff": Blob("cd" * 32, 5)}, epoch=4)
    store.put_manifest(NEFF)
    assert store.put_manifest(later) is Put.CREATED
    assert store.put_manifest(NEFF) is Put.OTHER
    assert store.read_manifest(NEFF.key) == later


def test_neff_replaces_an_earlier_failure(store: Store) -> None:
    store.put_manifest(FAILURE)
    assert store.put_manifest(replace(NEFF, epoch=FAILURE.epoch + 1)) is Put.CREATED
    manifest = store.read_manifest(NEFF.key)
    assert manifest is not None
    assert manifest.failure is None


@pytest.mark.parametrize("garbage", [b"", b"{", b"\0" * 999, NEFF.encode()[:-40]])
def test_damaged_manifest_is_a_miss_and_is_set_aside(store: Store, garbage: bytes) -> None:
    store.put_manifest(NEFF)
    [path] = paths(store.backend, "entries")
    store.backend.write(path, garbage)
    assert store.read_manifest(NEFF.key) is None
    assert store.quarantined == 1
    assert store.put_manifest(NEFF) is Put.CREATED


def test_publishing_over_a_damaged_manifest_sets_it_aside(store: Store) -> None:
    store.put_manifest(NEFF)
    [path] = paths(store.backend, "entries")
    store.backend.write(path, b"garbage")
    assert store.put_manifest(NEFF) is Put.CREATED
    assert store.quarantined == 1


def test_manifest_of_a_later_version_is_left_alone(store: Store) -> None:
    store.put_manifest(NEFF)
    [path] = paths(store.backend, "entries")
    later = NEFF.encode().replace(b'"schema": 1}', b'"schema": 2}')
    store.backend.write(path, later)
    assert store.read_manifest(NEFF.key) is None
    assert store.put_manifest(NEFF) is Put.OTHER
    assert store.backend.read(path, 10_000) == later


def test_dropping_a_manifest_spares_its_successor(store: Store) -> None:
    later = replace(NEFF, files={"module.neff": Blob("cd" * 32, 5)}, epoch=4)
    store.put_manifest(later)
    assert not store.drop_manifest(NEFF)
    assert store.read_manifest(NEFF.key) == later
    assert store.drop_manifest(later)
    assert store.read_manifest(NEFF.key) is None


def test_namespaces_do_not_see_each_other(backend: Backend) -> None:
    Store(backend, "team-a").put_manifest(NEFF)
    assert Store(backend, "team-b").read_manifest(NEFF.key) is None
    assert list(Store(backend, "team-b").entries()) == []


@pytest.mark.parametrize("name", ["", "..", "a/b", "A", "-a", "a" * 65, "a\n"])
def test_names_that_could_be_paths_are_refused(backend: Backend, name: str) -> None:
    with pytest.raises(CacheError, match="namespace"):
        Store(backend, name)
    with pytest.raises(ValueError):
        Store(backend).read_manifest(name)


@pytest.mark.parametrize(
    ("policy", "file_mode", "dir_mode"),
    [("group", 0o664, 0o2775), ("private", 0o600, 0o700), ("world-read", 0o644, 0o755)],
)
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_modes_follow_the_policy_not_the_umask(
    tmp_path: Path, policy: str, file_mode: int, dir_mode: int, umask: int
) -> None:
    previous = os.umask(umask)
    try:
        store = open_storage(str(tmp_path / "new" / "mount"), permissions=policy).store
        store.put_blob(b"content")
        store.put_manifest(NEFF)
    finally:
        os.umask(previous)
    for path in (tmp_path / "new").rglob("*"):
        expected = dir_mode if path.is_dir() else file_mode
        assert stat.S_IMODE(path.stat().st_mode) == expected, path


def test_nothing_is_left_in_staging(tmp_path: Path) -> None:
    backend = PosixBackend(tmp_path, permissions_named("group"))
    backend.write("a", b"1")
    backend.create("b", b"1")
    backend.create("b", b"2")
    backend.remove_if("a", b"other")
    assert list((tmp_path / "staging").iterdir()) == []


def test_link_whose_answer_was_lost_counts_as_made(tmp_path: Path) -> None:
    backend = PosixBackend(tmp_path, permissions_named("group"))
    with backend.staged(b"mine") as staged:
        assert backend.link(staged, "name")
        assert backend.link(staged, "name"), "an NFS client that repeats a request is told that the name exists"
    with backend.staged(b"other") as staged:
        assert not backend.link(staged, "name")


def test_without_hard_links_objects_are_still_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    backend = PosixBackend(tmp_path, permissions_named("group"))
    assert backend.create("a/b", b"one")
    assert not backend.create("a/b", b"two")
    assert backend.read("a/b", 10) == b"one"


def test_symbolic_link_in_place_of_an_object_is_not_followed(tmp_path: Path) -> None:
    backend = PosixBackend(tmp_path, permissions_named("group"))
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "a").symlink_to(tmp_path / "secret")
    with pytest.raises(StoreError, match="cannot read a"):
        backend.read("a", 100)


def test_fifo_in_place_of_an_object_does_not_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")
    with pytest.raises(StoreError, match="not a regular file"):
        PosixBackend(tmp_path, permissions_named("group")).read("a", 100)


def test_forbidden_place_says_what_to_do(public: Path) -> None:
    public.chmod(0o555)
    backend = PosixBackend(public / "store", permissions_named("group"))
    with unprivileged(), pytest.raises(StoreError, match="cannot write") as caught:
        backend.write("a", b"1")
    assert "NEURON_ENV_CACHE_URL" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "url",
    ["gs://bucket/x", "http://host/x", "file://host/x", "s3://", "s3:///x", "s3://b?/x", "s3://bucket/x?region=y"],
)
def test_url_that_cannot_be_a_store_is_refused(url: str) -> None:
    with pytest.raises(CacheError, match=re.escape(url)):
        open_storage(url)


def test_directory_and_file_url_are_one_place(tmp_path: Path) -> None:
    place = tmp_path / "with blank"
    a = open_storage(str(place)).store
    b = open_storage(f"file://{tmp_path}/with%20blank").store
    assert b.read_blob(a.put_blob(b"x")) == b"x"
    assert parts().key not in a.url
