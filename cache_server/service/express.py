"""The short way for small blobs: answered from the first bytes of a request, without a parser, a task or a router.

A fleet that starts asks for the same few blobs thousands of times at once, and a client sends the same headers each
time. So it is remembered which headers the long way, through the whole service, has found to ask for no more than a
plain GET and has admitted to a namespace a moment ago. A request with exactly these bytes, for a blob that is in
memory, is answered here; any doubt sends it the long way.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from cache_server.service.hot import HotBlobs

if TYPE_CHECKING:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    from cache_server.service.gate import Principal

ADMITTED_SECONDS = 2.0  # a revoked token goes on for as long, and no longer, on connections that used it
_REMEMBERED = 256  # namespaces and headers
_LONGEST = 4096  # bytes of headers
_TOGETHER = 1 << 16  # bytes; up to here one write of a copy is cheaper than two
_KEY = "neuron_env.express"
# What a request may say without being more than a plain GET.
_IDLE_TALK = frozenset({"host", "user-agent", "accept", "accept-encoding", "accept-language", "authorization"})

_BEGIN = b"GET /v1/namespaces/"
_MIDDLE = b"/blobs/"
_END = b" HTTP/1.1"
_DIGEST = slice(-64 - len(_END), -len(_END))
_SLASHES = slice(-64 - len(_END) - len(_MIDDLE), -64 - len(_END))
_NAMESPACE = slice(len(_BEGIN), -64 - len(_END) - len(_MIDDLE))
_ANSWER = (
    b'HTTP/1.1 200 OK\r\n%betag: "%b"\r\naccept-ranges: bytes\r\ncache-control: public, max-age=31536000, immutable\r\n'
    b"content-type: application/octet-stream\r\ncontent-length: %d\r\nx-request-id: %b\r\n\r\n%b"
)

Ticket = tuple[bytes, bytes]  # a namespace, and all that came after the request line
Told = Callable[[str, "Principal", str, int, float], None]


class Admissions:
    """Who was admitted to what. All connections without TLS share one: what they say is all that is known of them.

    A certificate belongs to its connection, and so does what it opens.
    """

    __slots__ = ("admitted",)

    def __init__(self) -> None:
        self.admitted: dict[Ticket, tuple[float, Principal]] = {}


class Express:
    """What the short way needs: the blobs in memory, and whom the long way has admitted.

    `allows` says whether a principal at an address may ask now, or has to be told, the long way, to be slower. `told`
    hears of each answer: request id, principal, namespace, bytes and the monotonic time of its beginning.
    """

    def __init__(
        self,
        hot: HotBlobs,
        draining: asyncio.Event,
        allows: Callable[[Principal, str], bool] = lambda principal, peer: True,
    ) -> None:
        self.hot = hot
        self.draining = draining
        self.allows = allows
        self.shared = Admissions()
        self.told: Told = lambda request_id, principal, namespace, sent, begun: None

    def admit(self, request: Request) -> None:
        """The long way has let this request read in its namespace."""
        admissions, headers = request.scope.get(_KEY, (None, b""))
        if not headers or not _IDLE_TALK.issuperset(request.headers.keys()):
            return
        if len(admissions.admitted) >= _REMEMBERED:
            admissions.admitted.clear()
        principal = request.scope["neuron_env"].principal
        ticket = (request.path_params["ns"].encode(), headers)
        admissions.admitted[ticket] = (time.monotonic() + ADMITTED_SECONDS, principal)


def express_protocol(express: Express, base: type[HttpToolsProtocol]) -> type[HttpToolsProtocol]:
    """uvicorn's protocol, or a subclass of it, with the short way before it."""
    mark, numbers = secrets.token_hex(5), itertools.count(1)
    rendered: tuple[list[tuple[bytes, bytes]], bytes] = ([], b"")

    class ExpressProtocol(base):  # type: ignore[valid-type,misc]
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._admissions = express.shared if self.scheme == "http" else Admissions()
            self._between = True  # no part of a request has come
            self._headers = b""  # of the request that is being parsed, if it came in one piece
            self._answered_at = 0.0

        def data_received(self, data: bytes) -> None:
            if self._between and data.startswith(_BEGIN):
                line_end = data.find(b"\r\n")
                if self._admissions.admitted and self._answer(data[:line_end], data[line_end:]):
                    return
                whole = data.find(b"\r\n\r\n") == len(data) - 4 and len(data) <= _LONGEST
                self._headers = data[line_end:] if whole else b""
            super().data_received(data)
            self._headers = b""

        def on_message_begin(self) -> None:
            self._between = False
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self.scope[_KEY] = (self._admissions, self._headers)
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            self._between = True
            super().on_message_complete()

        def timeout_keep_alive_handler(self) -> None:
            # The short way leaves the timer of the last long answer alone: what has passed since is counted here.
            rest = self._answered_at + self.timeout_keep_alive - time.monotonic()
            if rest > 0:
                self.timeout_keep_alive_task = self.loop.call_later(rest, self.timeout_keep_alive_handler)
            else:
                super().timeout_keep_alive_handler()

        def _answer(self, line: bytes, headers: bytes) -> bool:
            namespace = line[_NAMESPACE]
            until, principal = self._admissions.admitted.get((namespace, headers), (0.0, None))
            begun = time.monotonic()
            if begun >= until or line[_SLASHES] != _MIDDLE or not line.endswith(_END) or not self._idle():
                return False
            digest = line[_DIGEST]
            data = express.hot.get(digest.decode("ascii", "replace"))
            if data is None or principal is None or not express.allows(principal, self._peer()):
                return False
            request_id = f"{mark}{next(numbers):06x}"
            size = len(data)
            date = self._date()
            together = size <= _TOGETHER
            self.transport.write(_ANSWER % (date, digest, size, request_id.encode(), data if together else b""))
            if not together:
                self.transport.write(data)
            self.server_state.total_requests += 1
            self._answered_at = begun
            if self.timeout_keep_alive_task is None:  # the first request of this connection
                self.timeout_keep_alive_task = self.loop.call_later(
                    self.timeout_keep_alive, self.timeout_keep_alive_handler
                )
            express.told(request_id, principal, namespace.decode(), size, begun)
            return True

        def _peer(self) -> str:
            return self.client[0] if self.client else "unknown"

        def _date(self) -> bytes:
            nonlocal rendered
            headers = self.server_state.default_headers  # a new list each second
            if rendered[0] is not headers:
                rendered = (headers, b"".join([b"%b: %b\r\n" % header for header in headers]))
            return rendered[1]

        def _idle(self) -> bool:
            """Whether nothing is under way, so that an answer may be written at once."""
            return (
                (self.cycle is None or (self.cycle.response_complete and self.cycle.keep_alive))
                and not self.pipeline
                and not self.flow.write_paused
                and not express.draining.is_set()
            )

    return ExpressProtocol
