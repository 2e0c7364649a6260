"""Content of any size: read and written piece by piece, verified before anybody sees it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cache_server.backends import Backend, pieces
from cache_server.backends.posix import PosixBackend
from cache_server.backends.s3 import S3Backend
from cache_server.backends.s3bucket import S3Bucket
from cache_server.backends.s3stream import S3Incoming
from cache_server.errors import DigestError, StoreError
from cache_server.manifest import Blob
from cache_server.permissions import permissions_named
from cache_server.store import Store, blob_path

DATA = os.urandom(1 << 20) * 3 + b"the end"


def blob_of(data: bytes) -> Blob:
    return Blob(hashlib.sha256(data).hexdigest(), len(data))


@pytest.fixture
def posix(tmp_path: Path) -> Store:
    return Store(PosixBackend(tmp_path / "store", permissions_named("group")))


def put(store: Store, data: bytes, *, step: int = 300_001) -> Blob:
    blob = blob_of(data)
    upload = store.receive_blob(blob)
    for at in range(0, len(data), step):
        upload.append(data[at : at + step])
    upload.finish()
    return blob


def staged(backend: Backend) -> list[str]:
    return sorted(backend.walk("staging"))


def test_what_came_in_pieces_is_read_in_pieces(backend: Backend) -> None:
    store = Store(backend)
    blob = put(store, DATA)
    content = store.open_blob(blob.sha256)
    assert content is not None
    with contextlib.closing(content):
        assert content.size == len(DATA)
        assert b"".join(pieces(content)) == DATA
        assert b"".join(pieces(content, 1_000_000, 2_500_000)) == DATA[1_000_000:2_500_000]
        assert content.read(len(DATA) - 3, 3) == b"end"
    assert store.read_blob(blob) == DATA
    found = store.find_blob(blob.sha256)
    assert found is not None
    assert found.size == len(DATA)
    assert found in list(backend.scan("blobs"))
    assert staged(backend) == []


def test_an_empty_object_is_an_object(backend: Backend) -> None:
    store = Store(backend)
    blob = put(store, b"")
    content = store.open_blob(blob.sha256)
    assert content is not None
    assert list(pieces(content)) == []
    content.close()


def test_nobody_sees_an_upload_before_its_end(backend: Backend) -> None:
    store = Store(backend)
    upload = store.receive_blob(blob_of(DATA))
    upload.append(DATA)
    assert store.find_blob(upload.blob.sha256) is None
    assert store.open_blob(upload.blob.sha256) is None
    upload.abort()
    assert store.find_blob(upload.blob.sha256) is None
    assert staged(backend) == []


@pytest.mark.parametrize("sent", [DATA[:-1] + b"?", DATA[:-1]])
def test_other_content_than_announced_never_appears(backend: Backend, sent: bytes) -> None:
    store = Store(backend)
    upload = store.receive_blob(blob_of(DATA))
    upload.append(sent)
    with pytest.raises(DigestError):
        upload.finish()
    assert store.find_blob(upload.blob.sha256) is None
    assert staged(backend) == []
    with pytest.raises(StoreError):
        upload._incoming.append(b"more")


def test_more_than_announced_is_refused_before_it_is_written(backend: Backend) -> None:
    upload = Store(backend).receive_blob(blob_of(DATA))
    upload.append(DATA)
    with pytest.raises(DigestError, match="more than"):
        upload.append(b"x")
    assert upload.offset == len(DATA)
    upload.finish()


def test_a_damaged_copy_is_replaced(backend: Backend) -> None:
    store = Store(backend)
    blob = blob_of(DATA)
    backend.write(blob_path(blob.sha256), b"damaged")
    put(store, DATA)
    assert store.read_blob(blob) == DATA


def test_verification_in_pieces_sets_damage_aside(backend: Backend) -> None:
    store = Store(backend)
    blob = put(store, DATA)
    assert store.verify_blob(blob)
    for damaged in (DATA[:-1], DATA[:-1] + b"?"):
        backend.write(blob_path(blob.sha256), damaged)
        assert not store.verify_blob(blob)
        assert store.find_blob(blob.sha256) is None
    assert store.quarantined == 2
    assert not store.verify_blob(blob)


def test_a_touched_object_is_not_removed_as_it_was_found(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    backend.write("a", b"one")
    found = backend.find("a")
    assert found is not None
    if isinstance(backend, PosixBackend):
        os.utime(backend.root / "a", (1, 1))
        found = backend.find("a")
        assert found is not None
    assert backend.touch("a")
    if not isinstance(backend, S3Backend):  # whose times are whole seconds
        assert not backend.remove(found)
    assert backend.read("a", 10) == b"one"
    assert not backend.touch("missing")


def test_a_reader_keeps_the_version_it_opened(posix: Store) -> None:
    blob = put(posix, DATA)
    content = posix.open_blob(blob.sha256)
    assert content is not None
    posix.backend.write(blob_path(blob.sha256), b"another")
    with contextlib.closing(content):
        assert b"".join(pieces(content)) == DATA


def test_s3_notices_that_an_object_was_replaced_while_it_is_read(s3_url: str) -> None:
    backend = S3Backend(S3Bucket(s3_url))
    backend.write("a", b"one")
    content = backend.open("a")
    backend.write("a", b"two")
    assert content is not None
    with pytest.raises(StoreError, match="replaced"):
        content.read(0, 3)


def test_s3_sends_parts_as_they_fill_and_leaves_none_behind(s3_url: str) -> None:
    bucket = S3Bucket(s3_url)
    data = os.urandom(13 << 20)

    def parts_pending() -> int:
        answer = bucket._client(5.0).list_multipart_uploads(Bucket=bucket.bucket)
        return len(answer.get("Uploads", ()))

    incoming = S3Incoming(bucket, "a", len(data), part=5 << 20)
    for at in range(0, len(data), 1 << 20):
        incoming.append(data[at : at + (1 << 20)])
        assert len(incoming._buffer) <= 5 << 20
    assert parts_pending() == 1
    incoming.finish()
    assert parts_pending() == 0
    fetched = bucket.get("a", len(data))
    assert fetched is not None
    assert fetched.data == data

    incoming = S3Incoming(bucket, "b", len(data), part=5 << 20)
    incoming.append(data)
    assert parts_pending() == 1
    assert not incoming.suspend()
    assert parts_pending() == 0
    assert bucket.head("b") is None


def test_an_upload_goes_on_where_it_stopped(posix: Store) -> None:
    blob = blob_of(DATA)
    upload = posix.receive_blob(blob, name="session")
    upload.append(DATA[:1_500_000])
    assert posix.resume_blob(blob, name="session") is None  # in hand
    assert upload.suspend()
    resumed = posix.resume_blob(blob, name="session")
    assert resumed is not None
    assert resumed.offset == 1_500_000
    resumed.append(DATA[1_500_000:])
    resumed.finish()
    assert posix.read_blob(blob) == DATA
    assert posix.resume_blob(blob, name="session") is None


def test_an_upload_survives_the_kill_of_its_process(posix: Store, tmp_path: Path) -> None:
    blob = blob_of(DATA)
    program = (
        "import os, signal, sys; from pathlib import Path;"
        "from cache_server.manifest import Blob; from cache_server.storage import open_storage;"
        f"store = open_storage({str(tmp_path / 'store')!r}).store;"
        f"upload = store.receive_blob(Blob({blob.sha256!r}, {blob.size}), name='session');"
        "upload.append(sys.stdin.buffer.read()); os.kill(os.getpid(), signal.SIGKILL)"
    )
    child = subprocess.run([sys.executable, "-c", program], input=DATA[:1_000_000], check=False)
    assert child.returncode == -9
    [left] = (tmp_path / "store").rglob("session")
    store = Store(PosixBackend(left.parents[1], permissions_named("group")))
    resumed = store.resume_blob(blob, name="session")
    assert resumed is not None
    assert resumed.offset == 1_000_000
    resumed.append(DATA[1_000_000:])
    resumed.finish()
    assert store.read_blob(blob) == DATA


def test_what_was_changed_between_two_halves_does_not_verify(posix: Store, tmp_path: Path) -> None:
    upload = posix.receive_blob(blob_of(DATA), name="session")
    upload.append(DATA[:1000])
    upload.suspend()
    (tmp_path / "store" / "staging" / "session").write_bytes(b"x" * 1000)
    resumed = posix.resume_blob(upload.blob, name="session")
    assert resumed is not None
    resumed.append(DATA[1000:])
    with pytest.raises(DigestError):
        resumed.finish()
    assert posix.find_blob(upload.blob.sha256) is None


def test_a_full_disk_keeps_what_was_written(posix: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    upload = posix.receive_blob(blob_of(DATA))
    upload.append(DATA[:1000])
    real = os.pwrite

    def full(fd: int, data: memoryview, at: int) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StoreError, match="No space left"):
        upload.append(DATA[1000:2000])
    assert upload.offset == 1000
    monkeypatch.setattr(os, "pwrite", real)
    upload.append(DATA[1000:])
    upload.finish()
    assert posix.read_blob(upload.blob) == DATA
