"""Bodies of any size, in and out, in constant memory."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cache_server.backends import Content
from cache_server.errors import StoreError
from cache_server.service.errors import ProblemError
from cache_server.service.intake import INTAKE, Intake

BLOCK = 1 << 20  # bytes that go to the store at once
_BLOCK_SECONDS = 300.0  # for one block to arrive: whoever is slower holds reserved room that others could use

Call = Callable[..., Awaitable[Any]]


class Sink(Protocol):
    """What a body goes into: an upload."""

    def append(self, data: bytes | memoryview) -> None: ...


def content_length(headers: Mapping[str, str], limit: int) -> int:
    """The announced size of a body in bytes. Raises ProblemError if there is none, or if it is beyond `limit`."""
    text = headers.get("content-length", "")
    if not (text.isascii() and text.isdigit()):
        raise ProblemError(
            "length-required", "the request has no Content-Length", hint="send one: room is set aside first"
        )
    if len(text) > 19 or int(text) > limit:
        raise ProblemError("too-large", f"{text[:20]} bytes are announced, and at most {limit} are taken")
    return int(text)


async def blocks(request: Request, size: int = BLOCK) -> AsyncIterator[bytes | memoryview]:
    """A body in blocks of about `size` bytes. A block is good until the next is asked for.

    Raises ClientDisconnect when the sender goes away, after what had come; ProblemError when it is too slow.
    """
    intake: Intake | None = request.scope.get(INTAKE)
    source = _messages(request.receive, size) if intake is None else intake.blocks(size)
    while True:
        try:
            async with asyncio.timeout(_BLOCK_SECONDS):
                block = await anext(source, None)
        except TimeoutError:
            raise _too_slow(size) from None
        if block is None:
            return
        yield block


async def _messages(receive: Receive, size: int) -> AsyncIterator[bytes | memoryview]:
    more = True
    while more:
        parts: list[bytes] = []
        held = 0
        gone = False
        while more and held < size and not gone:
            message = await receive()
            gone = message["type"] == "http.disconnect"
            body = message.get("body", b"")
            held += len(body)
            parts.append(body)
            more = message.get("more_body", False)
        if held:
            yield b"".join(parts)
        if gone:
            raise ClientDisconnect


async def read_all(request: Request, size: int) -> bytes | memoryview:
    """A body of `size` bytes at once. Raises as `blocks`, and ProblemError if it is longer or shorter."""
    if INTAKE in request.scope:
        parts = [block async for block in blocks(request, size)]
    else:
        parts = await _small_body(request.receive, size)
    data = parts[0] if len(parts) == 1 else b"".join(parts)
    if len(data) != size:
        raise ProblemError("digest-mismatch", f"{len(data)} bytes came instead of the {size} that were announced")
    return data


async def _small_body(receive: Receive, size: int) -> list[bytes | memoryview]:
    """As `blocks`, without a generator: for a body that comes at once, two of them are most of the work."""
    parts: list[bytes | memoryview] = []
    held, more = 0, True
    try:
        async with asyncio.timeout(_BLOCK_SECONDS):
            while more and held <= size:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                body = message.get("body", b"")
                held += len(body)
                parts.append(body)
                more = message.get("more_body", False)
    except TimeoutError:
        raise _too_slow(size) from None
    return parts


def _too_slow(size: int) -> ProblemError:
    return ProblemError("bad-request", f"less than {size} bytes came in {_BLOCK_SECONDS:.0f} seconds")


class ContentAnswer(Response):
    """An answer whose body is a part of an open object, which it closes. The next piece is read while one is sent.

    With `sha256` the body is the whole object: it is hashed on its way, and `done` is told at the end whether it was
    right. If not, the last piece is not sent, so that no client takes the answer for complete.
    """

    def __init__(
        self,
        call: Call,
        content: Content,
        start: int,
        stop: int,
        *,
        status: int,
        headers: Mapping[str, str],
        sha256: str | None = None,
        done: Callable[[bool], None] = lambda whole: None,
    ) -> None:
        super().__init__(b"", status, dict(headers))
        self.headers["content-length"] = str(stop - start)
        self._call = call
        self._content = content
        self._span = (start, stop)
        self._expected = sha256
        self._hash = hashlib.sha256()
        self._done = done
        self._following: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._following.set_result(b"")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        listener = asyncio.ensure_future(_disconnected(receive))
        try:
            await self._send(send, listener)
        finally:
            listener.cancel()
            await asyncio.shield(self._close())

    async def _send(self, send: Send, listener: asyncio.Future[None]) -> None:
        start, stop = self._span
        self._read_ahead(start)
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        while True:
            data = await self._following
            start += len(data)
            if start >= stop:
                break
            self._read_ahead(start)
            await send({"type": "http.response.body", "body": data, "more_body": True})
            if listener.done():
                return  # nobody is there to read the rest
        if self._expected is not None:
            whole = self._hash.hexdigest() == self._expected
            await self._call(self._done, whole)
            if not whole:
                raise StoreError(f"the blob {self._expected} is damaged: the answer ends before its last piece")
        await send({"type": "http.response.body", "body": data})

    def _read_ahead(self, start: int) -> None:
        self._following = asyncio.ensure_future(self._call(self._read, start))
        self._following.add_done_callback(lambda read: read.cancelled() or read.exception())

    async def _close(self) -> None:
        # A read may be on its way in a thread: it must not find the descriptor closed, or of another file.
        if not self._following.done():
            await asyncio.wait([self._following])
        await self._call(self._content.close)

    def _read(self, start: int) -> bytes:
        data = self._content.read(start, min(self._content.piece, self._span[1] - start))
        if self._expected is not None:
            self._hash.update(data)
        return data


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
