"""Large bodies, read from the socket straight into the memory that they are hashed and written from.

uvicorn hands a body on in pieces of 64 KiB, each copied four times on its way. Here the transport gets another
protocol for as long as a body lasts, which gives it a buffer to receive into.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect
from starlette.types import Message

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

INTAKE = "neuron_env.intake"  # where a request's scope holds its intake
LEAST = 1 << 16  # bytes from which a body is worth it
_UNIT = 1 << 20  # bytes; buffers are multiples of it
_WORTH = 1 << 12  # bytes of a body; fewer are copied faster than looked after
_WITH_BODY = (b"PUT ", b"PATCH ")


class Buffers:
    """Memory to receive into, used again: fresh memory costs as much as hashing what comes into it.

    Belongs to one event loop. A buffer is free once nobody has a view of it any more, whoever that was.
    """

    def __init__(self, kept: int) -> None:
        """`kept` is in bytes: what stays allocated at most."""
        self._kept = kept // _UNIT
        self._buffers: deque[bytearray] = deque()
        self._units = 0

    def take(self, size: int) -> memoryview:
        """`size` bytes of any content."""
        for _ in range(len(self._buffers)):
            buffer = self._buffers.popleft()
            self._buffers.append(buffer)
            if len(buffer) >= size and _is_free(buffer):
                return memoryview(buffer)[:size]
        units = -(-size // _UNIT)
        buffer = bytearray(units * _UNIT)
        while self._buffers and self._units + units > self._kept:
            self._units -= len(self._buffers.popleft()) // _UNIT
        if units <= self._kept:
            self._buffers.append(buffer)
            self._units += units
        return memoryview(buffer)[:size]


def _is_free(buffer: bytearray) -> bool:
    try:
        buffer.append(0)  # which Python refuses as long as there is a view
    except BufferError:
        return False
    buffer.pop()
    return True


_buffers = Buffers(32 << 20)


class Intake(asyncio.BufferedProtocol):
    """The rest of one body, `size` bytes of it. Belongs to the event loop.

    `owner` is the connection's protocol: it hears of what is not about the body, and gets the transport back by
    `done` as soon as the last byte has come, before any byte of a next request is read. What nobody takes because the
    answer has been given already is thrown away by `discard`. `begin` is called when the body is asked for.
    """

    def __init__(
        self,
        transport: Any,
        owner: asyncio.Protocol,
        size: int,
        first: bytes | memoryview,
        *,
        begin: Callable[[], None],
        done: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._owner = owner
        self._missing = size - len(first)  # bytes that the socket has yet to give
        self._begin = begin
        self._done = done
        self._first = first
        self._to_take = size
        self._block = memoryview(b"")  # what is received into, and how much of it is full
        self._filled = 0
        self._wake = asyncio.Event()
        self._paused = False
        self._gone = False
        self._discarding = False
        self._messages: AsyncIterator[memoryview] | None = None
        self._ended = False
        self._pause()  # nobody has asked yet

    async def blocks(self, size: int) -> AsyncIterator[memoryview]:
        """The body in blocks of `size` bytes, the last one shorter; each is good for as long as somebody has it.

        A block is received while the caller works on the one before. Raises ClientDisconnect, after all that came,
        when the sender goes away.
        """
        self._begin()
        block = self._next_block(size)
        while block is not None:
            while self._filled < len(block) and not self._gone:
                self._wake.clear()
                await self._wake.wait()
            full = block[: self._filled]
            self._to_take -= len(full)
            if self._gone and len(full) < len(block):
                if full:
                    yield full
                raise ClientDisconnect
            block = self._next_block(size)
            yield full

    async def receive(self, after: Callable[[], Awaitable[Message]]) -> Message:
        """The body as ASGI's messages, for an application that knows nothing of this; then what `after` gives."""
        if self._ended:
            return await after()
        if self._messages is None:
            self._messages = self.blocks(LEAST)
        try:
            return {"type": "http.request", "body": bytes(await anext(self._messages)), "more_body": True}
        except StopAsyncIteration:
            self._ended = True
            return {"type": "http.request", "body": b"", "more_body": False}
        except ClientDisconnect:
            return {"type": "http.disconnect"}

    def discard(self) -> None:
        """Nobody will take the rest."""
        self._discarding = True
        self._block, self._filled = _buffers.take(LEAST), 0
        self._resume()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._discarding:
            return self._block[: self._missing]
        return self._block[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._missing -= nbytes
        if not self._discarding:
            self._filled += nbytes
            if self._filled == len(self._block):
                self._pause()
                self._wake.set()
        if self._missing == 0:
            self._finish()

    def eof_received(self) -> bool | None:
        return self._owner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gone = True
        self._wake.set()
        self._owner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._owner.pause_writing()

    def resume_writing(self) -> None:
        self._owner.resume_writing()

    def _next_block(self, size: int) -> memoryview | None:
        """A block to be filled; None at the end of the body."""
        length = min(size, self._to_take)
        if length == 0:
            self._block = memoryview(b"")
            return None
        block = _buffers.take(length)
        used = min(len(self._first), length)
        block[:used] = self._first[:used]
        self._first = self._first[used:]
        self._block, self._filled = block, used
        if used < length:
            self._resume()
        return block

    def _finish(self) -> None:
        # Which protocol reads is settled when reading begins.
        self._pause()
        if self._discarding:
            self._block = memoryview(b"")
        self._done()
        self._resume()

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            with contextlib.suppress(RuntimeError):  # it is closing
                self._transport.pause_reading()

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            with contextlib.suppress(RuntimeError):
                self._transport.resume_reading()


def intake_protocol(base: type[HttpToolsProtocol]) -> type[HttpToolsProtocol]:
    """uvicorn's protocol, or a subclass of it, whose large bodies of known length come through an Intake.

    The intake is in the request's scope; an application that does not look for it gets the body by ASGI's messages.
    """
    import httptools

    class IntakeProtocol(base):  # type: ignore[valid-type,misc]
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._announced = 0  # bytes of the body that begins in what is being parsed
            self._intake: Intake | None = None

        def on_headers_complete(self) -> None:
            super().on_headers_complete()
            if (
                self.parser.get_method() in (b"PUT", b"PATCH")
                and not self.pipeline
                and not self.parser.should_upgrade()
            ):
                length = next((value for name, value in self.headers if name == b"content-length"), b"")
                self._announced = int(length) if length.isdigit() and int(length) >= LEAST else 0

        def data_received(self, data: bytes) -> None:
            # What has come of a large body stays out of the parser, which copies it.
            end = data.find(b"\r\n\r\n") + 4 if data.startswith(_WITH_BODY) else 0
            if end < 4 or len(data) - end < _WORTH:
                end = len(data)
            super().data_received(data[:end])
            rest = memoryview(data)[end:]
            size, self._announced = self._announced, 0
            if size > len(rest) and self._body_goes_on():
                self._take_over(size, rest)
            elif rest:
                super().data_received(bytes(rest))

        def _body_goes_on(self) -> bool:
            return self.cycle.more_body and not self.cycle.response_complete and not self.transport.is_closing()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self._intake is not None:
                self._intake.discard()

        def _take_over(self, size: int, rest: memoryview) -> None:
            # The application has not run yet: its task begins after this call.
            cycle = self.cycle
            first = rest if rest else bytes(cycle.body)
            cycle.body = bytearray()
            cycle.message_event.clear()
            self.flow.resume_reading()

            def begin() -> None:
                if cycle.waiting_for_100_continue:
                    cycle.waiting_for_100_continue = False
                    self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

            intake = Intake(self.transport, self, size, first, begin=begin, done=self._body_done)
            after = cycle.receive
            cycle.receive = lambda: intake.receive(after)
            cycle.scope[INTAKE] = self._intake = intake
            self.transport.set_protocol(intake)

        def _body_done(self) -> None:
            self._intake = None
            self.transport.set_protocol(self)
            # The parser still waits for the body that it has not seen.
            self.parser = httptools.HttpRequestParser(self)
            self.on_message_complete()

    return IntakeProtocol
