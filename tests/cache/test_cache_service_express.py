"""The short way for small blobs, and large bodies' way into memory: never another answer than the long way's."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
import urllib3
from cache_kit import eventually
from service_kit import Service

pytest.importorskip("uvicorn")

from starlette.requests import Request
from starlette.types import Receive, Scope, Send
from uvicorn import Config, Server
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from cache_server.service import express as express_module
from cache_server.service.express import Express, express_protocol
from cache_server.service.hot import HotBlobs
from cache_server.service.intake import Buffers, intake_protocol

DATA = b"0123456789" * 100
NAME = hashlib.sha256(DATA).hexdigest()
PATH = f"/v1/namespaces/default/blobs/{NAME}"


class Long:
    """The long way: admits who has the token, and remembers what it was asked."""

    def __init__(self) -> None:
        self.hot = HotBlobs(1 << 20)
        self.hot.put(NAME, DATA)
        self.express = Express(self.hot, asyncio.Event())
        self.express.told = lambda *answer: self.short.append(answer)
        self.asked: list[str] = []
        self.short: list[tuple[Any, ...]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["neuron_env"] = SimpleNamespace(principal="somebody")
        scope["path_params"] = {"ns": scope["path"].split("/")[3]}
        request = Request(scope, receive)
        self.asked.append(f"{scope['method']} {scope['path']}")
        allowed = request.headers.get("authorization") == "Bearer good"
        body = await request.body()
        answer = (DATA if not body else str(len(body)).encode()) if allowed else b"no"
        if allowed:
            self.express.admit(request)
        headers = [(b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200 if allowed else 401, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


@pytest.fixture
def long(monkeypatch: pytest.MonkeyPatch) -> Long:
    monkeypatch.setattr(express_module, "ADMITTED_SECONDS", 3600.0)  # however slow this machine is just now
    return Long()


@pytest.fixture
def port(long: Long) -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    protocol = express_protocol(long.express, intake_protocol(HttpToolsProtocol))
    server = Server(Config(long, http=protocol, ws="none", lifespan="off", log_config=None, timeout_keep_alive=1))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    eventually(lambda: server.started, "the server has started")
    yield listener.getsockname()[1]
    server.should_exit = True
    thread.join()
    listener.close()


def request_bytes(token: str = "good", path: str = PATH, method: str = "GET", *headers: str) -> bytes:
    head = [f"{method} {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {token}", *headers, "", ""]
    return "\r\n".join(head).encode()


class Wire:
    """One connection, byte by byte."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._left = b""

    def ask(self, data: bytes) -> tuple[int, bytes]:
        self.socket.sendall(data)
        return self.answer()

    def answer(self) -> tuple[int, bytes]:
        while b"\r\n\r\n" not in self._left:
            self._more()
        head, _, self._left = self._left.partition(b"\r\n\r\n")
        size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        while len(self._left) < size:
            self._more()
        body, self._left = self._left[:size], self._left[size:]
        return int(head.split(b" ")[1]), body

    def _more(self) -> None:
        data = self.socket.recv(65536)
        assert data, "the connection has ended"
        self._left += data


@pytest.fixture
def wire(port: int) -> Iterator[Wire]:
    wire = Wire(port)
    yield wire
    wire.socket.close()


def test_the_same_request_takes_the_short_way_once_it_was_admitted(long: Long, wire: Wire) -> None:
    for _ in range(5):
        assert wire.ask(request_bytes()) == (200, DATA)
    assert len(long.asked) == 1
    eventually(lambda: len(long.short) == 4, "every answer is told of")  # which may be after the client has it
    assert [(who, namespace, sent) for _, who, namespace, sent, _ in long.short] == [("somebody", "default", 1000)] * 4
    assert len({identity for identity, *_ in long.short}) == 4


@pytest.mark.parametrize(
    "other",
    [
        request_bytes("bad"),
        request_bytes("good", PATH.replace("default", "secret")),
        request_bytes("good", PATH[:-1] + ("0" if PATH[-1] != "0" else "1")),
        request_bytes("good", PATH + "?x"),
        request_bytes("good", PATH, "HEAD")[:-2] + b"X: y\r\n\r\n",
        request_bytes("good", PATH, "GET", "Range: bytes=0-1"),
        request_bytes("good", PATH, "GET", f'If-None-Match: "{NAME}"'),
        request_bytes("good", PATH, "GET", "Connection: close"),
        request_bytes("good", PATH, "GET", "traceparent: 00-0-0-00"),
        request_bytes().replace(b"HTTP/1.1", b"HTTP/1.0"),
        request_bytes("good", "/v1/namespaces/a/../default/blobs/" + NAME),
    ],
)
def test_whatever_differs_takes_the_long_way(long: Long, wire: Wire, other: bytes) -> None:
    assert wire.ask(request_bytes()) == (200, DATA)
    assert len(long.asked) == 1
    wire.socket.sendall(other)
    eventually(lambda: len(long.asked) == 2, "the long way was asked")
    assert long.short == []


def test_what_asked_for_more_is_not_remembered(long: Long, wire: Wire) -> None:
    for _ in range(3):
        wire.ask(request_bytes("good", PATH, "GET", "Range: bytes=0-1"))
    assert (len(long.asked), long.short) == (3, [])


def test_a_fleet_takes_the_short_way_once_one_of_it_was_admitted(long: Long, wire: Wire, port: int) -> None:
    wire.ask(request_bytes())
    for _ in range(3):
        other = Wire(port)
        assert other.ask(request_bytes()) == (200, DATA)
        assert other.ask(request_bytes("bad"))[0] == 401
        other.socket.close()
    assert len(long.asked) == 4


def test_what_a_certificate_opened_stays_with_its_connection(
    long: Long, wire: Wire, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(httptools_impl, "is_ssl", lambda transport: True)
    first, second = Wire(port), Wire(port)
    for each in (first, first, second):
        assert each.ask(request_bytes()) == (200, DATA)
    assert len(long.asked) == 2
    for each in (first, second):
        each.socket.close()


def test_a_connection_that_only_took_the_short_way_ends_once_it_is_silent(long: Long, wire: Wire, port: int) -> None:
    wire.ask(request_bytes())
    other = Wire(port)
    assert other.ask(request_bytes()) == (200, DATA)
    assert len(long.asked) == 1
    assert other.socket.recv(1) == b""
    other.socket.close()


def test_an_admission_ends_soon(long: Long, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(express_module, "ADMITTED_SECONDS", 0.02)
    wire.ask(request_bytes())

    def asked_again() -> bool:
        wire.ask(request_bytes())
        return len(long.asked) >= 3

    eventually(asked_again, "the long way is asked again")


def test_requests_in_pieces_and_several_at_once_are_answered_in_order(long: Long, wire: Wire) -> None:
    wire.ask(request_bytes())
    data = request_bytes()
    for cut in (1, 20, 100, len(data) - 1):
        wire.socket.sendall(data[:cut])
        time.sleep(0.01)  # so that they are likely to arrive apart; either way the answer is the same
        assert wire.ask(data[cut:]) == (200, DATA)
    wire.socket.sendall(data + request_bytes("bad") + data)
    assert [wire.answer() for _ in range(3)] == [(200, DATA), (401, b"no"), (200, DATA)]


def test_a_service_that_drains_takes_the_long_way(long: Long, wire: Wire) -> None:
    wire.ask(request_bytes())
    long.express.draining.set()
    wire.ask(request_bytes())
    assert (len(long.asked), long.short) == (2, [])


def test_a_connection_that_is_used_stays_and_one_that_is_not_ends(long: Long, wire: Wire) -> None:
    end = time.monotonic() + 1.5  # longer than the server keeps a silent connection
    while time.monotonic() < end:
        assert wire.ask(request_bytes()) == (200, DATA)
        time.sleep(0.02)
    wire.socket.settimeout(60)
    assert wire.socket.recv(1) == b""


@pytest.mark.parametrize("size", [65535, 65536, 1 << 20, (1 << 20) + 1])
@pytest.mark.parametrize("token", ["good", "bad"])
def test_a_large_body_reaches_an_application_that_knows_nothing_of_it(wire: Wire, size: int, token: str) -> None:
    body = bytes(size)
    head = request_bytes(token, PATH, "PUT", f"Content-Length: {size}")
    expected = (200, str(size).encode()) if token == "good" else (401, b"no")
    for together in (True, False):
        if not together:
            wire.socket.sendall(head)
        assert wire.ask(head + body if together else body) == expected
    wire.socket.sendall(head + body + request_bytes())
    assert [wire.answer(), wire.answer()] == [expected, (200, DATA)]


def test_memory_to_receive_into_is_used_again_but_never_while_somebody_looks_at_it() -> None:
    buffers = Buffers(2 << 20)
    first, second, third = (buffers.take(1 << 20) for _ in range(3))
    first[:1], second[:1], third[:1] = b"1", b"2", b"3"
    part = second[:1]
    del second
    assert bytes(buffers.take(1000)[:1]) not in (b"1", b"2", b"3")
    assert (bytes(first[:1]), bytes(part), bytes(third[:1])) == (b"1", b"2", b"3")
    del first, third, part
    assert bytes(buffers.take(1000)[:1]) != b"\0"  # one of those


def test_memory_for_blobs_is_bounded_and_the_least_used_goes() -> None:
    hot = HotBlobs(1600)
    for name in "abcdefghijklmnop":
        hot.put(name, bytes(100))
    assert hot.get("a") is not None
    hot.put("q", bytes(100))
    assert (hot.get("a") is None, hot.get("b") is None, hot.held) == (False, True, 1600)
    hot.put("r", bytes(101))  # too large a share of the room
    assert hot.get("r") is None
    hot.put("q", bytes(50))
    assert hot.held == 1550


def test_each_answer_of_the_real_service_is_logged_and_counted(serve: Callable[..., Service]) -> None:
    service = serve()
    service.request("PUT", PATH, DATA)
    pool = urllib3.HTTPConnectionPool(urlsplit(service.url).netloc.split(":")[0], urlsplit(service.url).port, maxsize=1)
    answers = [pool.request("GET", PATH) for _ in range(20)]
    assert {answer.data for answer in answers} == {DATA}
    assert len({tuple(sorted(name.lower() for name in answer.headers)) for answer in answers}) == 1
    identities = {answer.headers["x-request-id"] for answer in answers}
    assert len(identities) == 20
    pool.close()

    def lines() -> list[dict[str, Any]]:
        return [line for line in service.logged() if line.get("request_id") in identities]

    eventually(lambda: len(lines()) == 20, "every answer has a line")
    assert {(line["status"], line["bytes"], line["namespace"]) for line in lines()} == {(200, len(DATA), "default")}
    counted = [
        line for line in service.get("/metrics").data.decode().splitlines() if 'blobs/{sha256}",status="200"' in line
    ]
    assert any(line.endswith(" 20.0") for line in counted)
