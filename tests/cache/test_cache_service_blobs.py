"""Blobs through a real process of the service: ranges, conditions, digests, and uploads that outlive a connection."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import urllib3
from cache_kit import eventually
from service_kit import Service

from cache_server.storage import open_storage

pytestmark = pytest.mark.fleet

Serve = Callable[..., Service]
SMALL = b"a small neff"
WHOLE = os.urandom(1 << 20)
LARGE = os.urandom(1 << 20) * 18 + b"the end"  # too large to be kept in memory or stored by one call


def name(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def path(data: bytes, namespace: str = "default") -> str:
    return f"/v1/namespaces/{namespace}/blobs/{name(data)}"


def staged(tmp_path: Path) -> list[Path]:
    return [it for it in (tmp_path / "served").rglob("staging/*") if it.is_file()]


def arrived(tmp_path: Path) -> int:
    """Bytes of the largest file that is on its way in."""
    sizes = [0]
    for file in staged(tmp_path):
        with contextlib.suppress(FileNotFoundError):
            sizes.append(file.stat().st_size)
    return max(sizes)


def nothing_left(tmp_path: Path) -> None:
    """Of uploads, that is: the service stages small records of its own now and then, for a moment each."""
    eventually(lambda: not staged(tmp_path), "nothing is left in staging")


def half_request(
    service: Service, method: str, where: str, announced: int, sent: bytes, *headers: str
) -> socket.socket:
    """A connection on which the body of a request has begun to arrive."""
    address = urlsplit(service.url)
    connection = socket.create_connection((address.hostname, address.port))
    head = [f"{method} {where} HTTP/1.1", "Host: x", f"Content-Length: {announced}", *headers, "", ""]
    connection.sendall("\r\n".join(head).encode() + sent)
    return connection


@pytest.mark.parametrize("data", [b"", SMALL, WHOLE, LARGE], ids=["empty", "small", "whole", "large"])
def test_a_blob_comes_back_as_it_was_sent(serve: Serve, tmp_path: Path, data: bytes) -> None:
    service = serve()
    assert service.get(path(data)).status == 404
    assert service.request("HEAD", path(data)).status == 404
    assert service.request("PUT", path(data), data).status == 201
    assert service.request("PUT", path(data), data).status == 200
    for _ in range(3):  # the first time from the store, then perhaps from memory
        answer = service.get(path(data))
        assert (answer.status, answer.data) == (200, data)
    assert answer.headers["etag"] == f'"{name(data)}"'
    head = service.request("HEAD", path(data))
    assert (head.status, head.headers["content-length"], head.data) == (200, str(len(data)), b"")
    stored = open_storage(str(tmp_path / "served")).store.open_blob(name(data))
    assert stored is not None
    assert stored.size == len(data)
    stored.close()
    nothing_left(tmp_path)


@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["from memory", "streamed"])
def test_ranges_and_conditions(serve: Serve, data: bytes) -> None:
    service = serve()
    service.request("PUT", path(data), data)
    etag, size = f'"{name(data)}"', len(data)

    def part(**headers: str) -> tuple[int, bytes, str | None]:
        answer = service.get(path(data), **headers)
        return answer.status, answer.data, answer.headers.get("content-range")

    assert part(Range="bytes=2-5") == (206, data[2:6], f"bytes 2-5/{size}")
    assert part(Range="bytes=5-") == (206, data[5:], f"bytes 5-{size - 1}/{size}")
    assert part(Range="bytes=-3") == (206, data[-3:], f"bytes {size - 3}-{size - 1}/{size}")
    assert part(Range=f"bytes={size}-")[::2] == (416, f"bytes */{size}")
    assert part(Range="bytes=1-2,4-5")[:2] == (200, data)
    assert part(Range="bytes=2-5", If_Range=etag)[0] == 206
    assert part(Range="bytes=2-5", If_Range='"another"')[:2] == (200, data)
    assert part(If_None_Match=etag)[:2] == (304, b"")
    assert part(If_None_Match='"another"')[0] == 200


@pytest.mark.parametrize("size", [len(SMALL), 9 << 20])
def test_other_content_than_the_name_says_is_refused(serve: Serve, tmp_path: Path, size: int) -> None:
    service = serve()
    data = os.urandom(size)
    wrong = data[:-1] + bytes([data[-1] ^ 1])
    answer = service.request("PUT", path(data), wrong)
    assert (answer.status, answer.slug) == (422, "digest-mismatch")
    assert service.get(path(data)).status == 404
    nothing_left(tmp_path)


def test_a_body_has_a_length_and_a_limit(serve: Serve) -> None:
    service = serve(NEURON_ENV_SERVER_BLOB_LIMIT="1MiB")
    connection = half_request(service, "PUT", path(LARGE), len(LARGE), b"")
    assert b" 413 " in connection.recv(1000).partition(b"\r\n")[0]
    connection.close()
    answer = urllib3.request("PUT", service.url + path(SMALL), body=iter([SMALL]))
    assert answer.status == 411
    assert service.post(path(SMALL) + "/uploads", {"size": 2 << 20}).slug == "too-large"


def test_a_body_that_breaks_off_leaves_nothing(serve: Serve, tmp_path: Path) -> None:
    service = serve()
    connection = half_request(service, "PUT", path(LARGE), len(LARGE), LARGE[: 3 << 20])
    eventually(lambda: arrived(tmp_path) > 1 << 20, "the upload has begun")
    connection.close()
    nothing_left(tmp_path)
    assert service.get(path(LARGE)).status == 404


def test_a_refused_body_does_not_disturb_the_next_request(serve: Serve) -> None:
    service = serve()
    pool = urllib3.HTTPConnectionPool(*urlsplit(service.url).netloc.split(":"), maxsize=1, block=True, retries=False)
    for _ in range(3):
        assert pool.request("PUT", "/nowhere", body=WHOLE).status == 404
        assert pool.request("PUT", path(WHOLE), body=WHOLE).status in (200, 201)
        assert pool.request("GET", path(WHOLE)).data == WHOLE
    assert pool.num_connections == 1
    pool.close()


def test_a_client_that_waits_to_be_told_to_go_on_is_told(serve: Serve) -> None:
    service = serve()
    connection = half_request(service, "PUT", path(WHOLE), len(WHOLE), b"", "Expect: 100-continue")
    assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
    connection.sendall(WHOLE)
    assert connection.recv(1000).startswith(b"HTTP/1.1 201 ")
    connection.close()


@pytest.mark.parametrize("data", [WHOLE, LARGE], ids=["read whole", "streamed"])
def test_damage_is_never_served_whole_and_is_set_aside(serve: Serve, tmp_path: Path, data: bytes) -> None:
    service = serve()
    service.request("PUT", path(data), data)
    [file] = [it for it in (tmp_path / "served").rglob(name(data)) if it.is_file()]
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    if data is WHOLE:
        assert service.get(path(data)).status == 404
    else:
        with pytest.raises(urllib3.exceptions.ProtocolError):
            service.get(path(data))
    eventually(lambda: not file.exists(), "the damaged file is set aside")
    assert service.get(path(data)).status == 404
    assert service.request("PUT", path(data), data).status == 201
    assert service.get(path(data)).data == data


def test_an_upload_takes_several_connections(serve: Serve, tmp_path: Path) -> None:
    service = serve()
    begun = service.post(path(LARGE) + "/uploads", {"size": len(LARGE)})
    where = begun.headers["location"]
    assert (begun.status, begun.json()["offset"]) == (201, 0)

    def offset() -> int:
        answer = service.request("HEAD", where)
        return int(answer.headers["upload-offset"]) if answer.status == 200 else -1

    assert offset() == 0
    first = service.request("PATCH", where, LARGE[:100], Upload_Offset="0")
    assert (first.status, first.headers["upload-offset"]) == (204, "100")
    wrong = service.request("PATCH", where, LARGE[:100], Upload_Offset="0")
    assert (wrong.status, wrong.slug, wrong.headers["upload-offset"]) == (409, "wrong-offset", "100")
    connection = half_request(service, "PATCH", where, len(LARGE) - 100, LARGE[100 : 3 << 20], "Upload-Offset: 100")
    eventually(lambda: arrived(tmp_path) > 2 << 20, "two blocks have arrived")
    connection.close()
    came = offset()
    assert 2 << 20 < came <= 3 << 20
    assert service.get(path(LARGE)).status == 404
    last = service.request("PATCH", where, LARGE[came:], Upload_Offset=str(came))
    assert last.status == 201
    assert offset() == -1
    assert service.get(path(LARGE)).data == LARGE
    there = service.post(path(LARGE) + "/uploads", {"size": len(LARGE)})
    assert (there.status, there.json()["complete"], there.json()["offset"]) == (200, True, len(LARGE))
    assert service.post(path(LARGE) + "/uploads", {"size": len(LARGE), "replace": True}).status == 201


def test_who_asks_last_has_the_upload(serve: Serve, tmp_path: Path) -> None:
    """The first connection seems alive to the service for as long as TCP does not give it up."""
    service = serve()
    where = service.post(path(LARGE) + "/uploads", {"size": len(LARGE)}).headers["location"]
    stalled = half_request(service, "PATCH", where, len(LARGE), LARGE[: 1 << 20], "Upload-Offset: 0")
    eventually(lambda: arrived(tmp_path) == 1 << 20, "a block has arrived")
    assert service.request("HEAD", where).headers["upload-offset"] == str(1 << 20)
    assert service.request("PATCH", where, LARGE[1 << 20 :], Upload_Offset=str(1 << 20)).status == 201
    stalled.sendall(LARGE[1 << 20 : 2 << 20])
    stalled.close()
    assert service.get(path(LARGE)).data == LARGE


def test_an_upload_of_other_content_is_thrown_away(serve: Serve, tmp_path: Path) -> None:
    service = serve()
    where = service.post(path(WHOLE) + "/uploads", {"size": len(WHOLE)}).headers["location"]
    answer = service.request("PATCH", where, bytes(len(WHOLE)), Upload_Offset="0")
    assert (answer.status, answer.slug) == (422, "digest-mismatch")
    assert service.request("HEAD", where).status == 404
    where = service.post(path(SMALL) + "/uploads", {"size": len(SMALL)}).headers["location"]
    assert service.request("PATCH", where, SMALL + b"more", Upload_Offset="0").status == 422
    where = service.post(path(SMALL) + "/uploads", {"size": len(SMALL)}).headers["location"]
    assert service.request("DELETE", where).status == 204
    assert service.request("HEAD", where).status == 404
    assert service.request("HEAD", "/v1/namespaces/default/uploads/no-such").status == 404
    nothing_left(tmp_path)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=["drained", "killed"])
def test_an_upload_survives_the_service(serve: Serve, end: signal.Signals) -> None:
    first = serve()
    where = first.post(path(LARGE) + "/uploads", {"size": len(LARGE)}).headers["location"]
    assert first.request("PATCH", where, LARGE[: 5 << 20], Upload_Offset="0").status == 204
    first.process.send_signal(end)
    first.wait()
    second = serve()
    assert second.request("HEAD", where).headers["upload-offset"] == str(5 << 20)
    assert second.request("HEAD", where.replace("/default/", "/other/")).status == 404
    assert second.request("PATCH", where, LARGE[5 << 20 :], Upload_Offset=str(5 << 20)).status == 201
    assert second.get(path(LARGE)).data == LARGE


def test_blobs_are_for_who_may_read_a_namespace_and_shared_by_all(serve: Serve) -> None:
    service = serve()
    service.request("PUT", path(SMALL), SMALL)
    assert service.get(path(SMALL, "other")).data == SMALL
    assert service.get(path(SMALL, "Not_A_Namespace")).status == 400
    closed = serve(None, "--anonymous", "read")
    assert closed.get(path(SMALL)).data == SMALL
    for method, where in (("PUT", path(SMALL)), ("POST", path(SMALL) + "/uploads"), ("PUT", "/ac/" + name(SMALL))):
        assert closed.request(method, where, b"{}").status == 403


def test_s3_gives_large_blobs_itself(serve: Serve, s3_url: str) -> None:
    service = serve(s3_url)
    assert service.request("PUT", path(LARGE), LARGE).status == 201
    service.request("PUT", path(SMALL), SMALL)
    answer = service.get(path(LARGE))
    assert (answer.status, answer.data) == (307, b"")
    assert urllib3.request("GET", answer.headers["location"]).data == LARGE
    assert service.request("HEAD", path(LARGE)).headers["content-length"] == str(len(LARGE))
    assert service.get(path(SMALL)).data == SMALL
    where = service.post(path(WHOLE) + "/uploads", {"size": len(WHOLE)}).headers["location"]
    service.request("PATCH", where, WHOLE[:1000], Upload_Offset="0")
    assert service.request("PATCH", where, WHOLE[1000:], Upload_Offset="1000").status == 201
    without = serve(s3_url, NEURON_ENV_SERVER_REDIRECT="0")
    assert without.get(path(LARGE)).data == LARGE
    assert without.get(path(LARGE), Range="bytes=9000000-9000004").data == LARGE[9000000:9000005]
