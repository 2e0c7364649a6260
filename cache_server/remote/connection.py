"""Single requests to a cache service over kept-alive connections, each bounded in time."""

from __future__ import annotations

import contextlib
import os
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cache_server.errors import StoreError, TimedOutError, UnavailableError
from cache_server.remote.options import RemoteOptions
from cache_server.remote.problems import Answer, is_temporary, refusal, temporary

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, PoolManager

_CONNECTIONS = 16
_SLOWEST = 256 * 1024  # bytes a second below which a transfer counts as stalled
_WRITING = 8 << 20  # bytes a second that a service is trusted to put on its disks before it answers
_CHUNK = 1 << 20
_ANSWER_LIMIT = 64 << 20  # 10,000 manifests
_PROBLEM_LIMIT = 1 << 20


class Connection:
    """One attempt a call, to the service that `options` name. Safe to use from several threads and after a fork.

    Methods raise UnavailableError for what another attempt may better, and StoreError for certificates and tokens.
    """

    def __init__(self, options: RemoteOptions) -> None:
        self.options = options
        self.url = options.url
        self._lock = threading.Lock()
        self._pools: dict[str, PoolManager] = {}
        self._process = os.getpid()
        self._token: str | None = None
        self._has_token = False

    def ask(
        self,
        method: str,
        path: str,
        *,
        body: bytes | memoryview | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float,
        wait: float = 0.0,
    ) -> Answer:
        """The whole answer to a request, whatever its status, unless that is a temporary one.

        `path` begins with a slash. `wait`: seconds of silence that were asked for, on top of `timeout`.
        """
        answer = self._ask_once(method, path, body, headers, timeout, wait)
        if answer.status == 401 and self.options.token_file is not None and self._forget_token():
            answer = self._ask_once(method, path, body, headers, timeout, wait)
        return answer

    @contextlib.contextmanager
    def fetch(self, path: str, headers: Mapping[str, str], *, timeout: float) -> Iterator[Stream]:
        """A blob's answer (status 200, 206, 404 or 416) whose body is read by the caller.

        A redirect is followed once, without the token and the client's certificate.
        """
        with self._open("GET", self.url + path, None, {**headers, **self._credentials()}, timeout, 0.0) as response:
            target = response.headers.get("Location")
            if response.status not in (302, 303, 307) or not target:
                yield self._stream(response, timeout)
                return
            self._drain(response, timeout)
        if self.url.startswith("https:") and not target.startswith("https:"):
            raise StoreError(f"the cache at {self.url} sends its clients to an address without encryption")
        with self._open("GET", target, None, headers, timeout, 0.0, own=False) as response:
            if response.status in (400, 401, 403):
                # Such addresses are good for a while only: the next attempt gets a fresh one.
                raise UnavailableError(f"the store behind the cache at {self.url} refuses its own address for a blob")
            yield self._stream(response, timeout)

    def lines(self, path: str, body: bytes, *, timeout: float) -> Iterator[bytes]:
        """POSTs a JSON object and gives the answer's lines as they come, each within `timeout` of the one before.

        Raises the refusal where there is one, and UnavailableError where the answer breaks off.
        """
        headers = {"Content-Type": "application/json", **self._credentials()}
        with self._open("POST", self.url + path, body, headers, timeout, 0.0) as response:
            if is_temporary(response.status):
                self._drain(response, timeout)
                raise temporary(self.url, response.status, _lower(response.headers))
            if response.status != 200:
                answer = Answer(response.status, _lower(response.headers), self._content(response, timeout))
                raise refusal(self.url, answer)
            rest: list[bytes] = []
            size = 0
            while chunk := _read(response, _CHUNK):
                *ended, begun = chunk.split(b"\n")
                for line in ended:
                    yield b"".join([*rest, line])
                    rest, size = [], 0
                rest.append(begun)
                size += len(begun)
                if size > _ANSWER_LIMIT:
                    raise StoreError(f"the cache at {self.url} answers more than anybody asked for")

    def close(self) -> None:
        with self._lock:
            pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            pool.clear()

    def _ask_once(
        self,
        method: str,
        path: str,
        body: bytes | memoryview | None,
        headers: Mapping[str, str] | None,
        timeout: float,
        wait: float,
    ) -> Answer:
        size = 0 if body is None else len(body)
        silence = timeout + wait + size / _WRITING
        sent = {**(headers or {}), **self._credentials()}
        with self._open(method, self.url + path, body, sent, silence, wait) as response:
            if is_temporary(response.status):
                self._drain(response, timeout)
                raise temporary(self.url, response.status, _lower(response.headers))
            content = b"" if method == "HEAD" else self._content(response, timeout)
            return Answer(response.status, _lower(response.headers), content)

    def _stream(self, response: BaseHTTPResponse, timeout: float) -> Stream:
        if is_temporary(response.status):
            self._drain(response, timeout)
            raise temporary(self.url, response.status, _lower(response.headers))
        if response.status not in (200, 206, 404, 416):
            raise refusal(self.url, Answer(response.status, _lower(response.headers), self._content(response, timeout)))
        return Stream(self.url, response, timeout)

    @contextlib.contextmanager
    def _open(
        self,
        method: str,
        url: str,
        body: bytes | memoryview | None,
        headers: Mapping[str, str],
        silence: float,
        wait: float,
        *,
        own: bool = True,
    ) -> Iterator[BaseHTTPResponse]:
        import urllib3

        timeout = urllib3.Timeout(connect=max(0.01, silence - wait), read=max(0.01, silence))
        sent = {"Accept-Encoding": "identity", **headers}
        chunks: Any = None
        if body is not None:
            sent["Content-Length"] = str(len(body))
            # In pieces, since a socket's time-out holds for all of what it is given at once.
            chunks = _Pieces(body, time.monotonic() + silence + len(body) / _SLOWEST)
        response: BaseHTTPResponse | None = None
        try:
            response = self._pool("own" if own else "other").request(
                method, url, body=chunks, headers=sent, timeout=timeout, preload_content=False, redirect=False
            )
            yield response
        except BaseException as error:
            if response is not None:
                response.close()  # what is left of it must not be read as the next answer
            if isinstance(error, urllib3.exceptions.HTTPError | OSError):
                raise _failure(self.url, error) from error
            raise
        if response.length_remaining == 0 or response.closed:
            response.release_conn()
        else:
            response.close()

    def _content(self, response: BaseHTTPResponse, timeout: float) -> bytes:
        limit = _ANSWER_LIMIT if response.status < 400 else _PROBLEM_LIMIT
        end = time.monotonic() + timeout + limit / _SLOWEST if response.status < 400 else time.monotonic() + timeout
        chunks, size = [], 0
        while chunk := _read(response, _CHUNK):
            chunks.append(chunk)
            size += len(chunk)
            if size > limit:
                raise StoreError(f"the cache at {self.url} answers more than anybody asked for")
            if time.monotonic() > end:
                raise TimedOutError(f"the cache at {self.url} takes too long over an answer")
        announced = response.headers.get("Content-Length")
        if announced is not None and announced.isascii() and announced.isdigit() and int(announced) != size:
            raise UnavailableError(f"the cache at {self.url} breaks off in the middle of an answer")
        return b"".join(chunks)

    def _drain(self, response: BaseHTTPResponse, timeout: float) -> None:
        """Reads what is left of a small body, so that the connection can be used again."""
        self._content(response, timeout)

    def _credentials(self) -> dict[str, str]:
        with self._lock:
            if not self._has_token:
                self._token = self.options.current_token()
                self._has_token = True
            return {} if self._token is None else {"Authorization": f"Bearer {self._token}"}

    def _forget_token(self) -> bool:
        """Reads the token's file again; False if it holds the token that was refused."""
        with self._lock:
            refused, self._token = self._token, self.options.current_token()
            return self._token != refused

    def _pool(self, kind: str) -> PoolManager:
        import urllib3

        with self._lock:
            if self._process != os.getpid():
                # A forked child must not talk into its parent's connections.
                self._pools, self._process = {}, os.getpid()
            if kind not in self._pools:
                context = self._tls(kind) if kind == "other" or self.url.startswith("https:") else None
                self._pools[kind] = urllib3.PoolManager(
                    maxsize=_CONNECTIONS, retries=False, ssl_context=context, blocksize=_CHUNK
                )
            return self._pools[kind]

    def _tls(self, kind: str) -> ssl.SSLContext:
        options = self.options
        try:
            if kind == "own":
                context = ssl.create_default_context(cafile=options.ca_file)
                if options.client_cert is not None:
                    context.load_cert_chain(options.client_cert, options.client_key)
            else:
                context = ssl.create_default_context()
                if options.ca_file is not None:
                    context.load_verify_locations(options.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise StoreError(
                f"the certificates for the cache at {self.url} cannot be used: {error}",
                hint="correct `NEURON_ENV_CACHE_CA_FILE`, `NEURON_ENV_CACHE_CLIENT_CERT` or "
                "`NEURON_ENV_CACHE_CLIENT_KEY`",
            ) from error
        return context


class Stream:
    """The body of a blob's answer on its way."""

    def __init__(self, url: str, response: BaseHTTPResponse, timeout: float) -> None:
        self.status = response.status
        self.headers = _lower(response.headers)
        self._url = url
        self._response = response
        self._timeout = timeout

    def into(self, target: memoryview) -> Iterator[int]:
        """Fills `target` from its beginning and yields the bytes it has after each piece. Reads no further.

        Raises UnavailableError when the body ends early, TimedOutError when it comes too slowly.
        """
        end = time.monotonic() + self._timeout + len(target) / _SLOWEST
        done = 0
        while done < len(target):
            piece = _read(self._response, min(_CHUNK, len(target) - done))
            if not piece:
                raise UnavailableError(f"the cache at {self._url} breaks off in the middle of a blob")
            target[done : done + len(piece)] = piece
            done += len(piece)
            yield done
            if time.monotonic() > end:
                raise TimedOutError(f"the cache at {self._url} sends a blob too slowly")


class _Pieces:
    """A request's body in pieces, until its time is over. A retry makes a new one."""

    def __init__(self, body: bytes | memoryview, end: float) -> None:
        self._body = memoryview(body)
        self._end = end

    def __iter__(self) -> Iterator[memoryview]:
        for start in range(0, len(self._body), _CHUNK):
            if time.monotonic() > self._end:
                raise TimeoutError("the body is taken too slowly")
            yield self._body[start : start + _CHUNK]


def _read(response: BaseHTTPResponse, most: int) -> bytes:
    """What has come, up to `most` bytes; empty at the end. Does not wait for more once there is something."""
    return bytes(response.read1(most, decode_content=False))


def _lower(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _failure(url: str, error: Exception) -> StoreError:
    import urllib3

    kinds = urllib3.exceptions
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return StoreError(
                f"the cache at {url} cannot be trusted: {cause.verify_message}",
                hint="set `NEURON_ENV_CACHE_CA_FILE` to the certificate of the authority that signed for it",
            )
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, kinds.LocationParseError):
        return StoreError(f"not an address: {url}", hint="correct `NEURON_ENV_CACHE_URL`")
    if isinstance(error, kinds.NewConnectionError | kinds.NameResolutionError):
        return UnavailableError(f"the cache at {url} cannot be reached", hint="see that it runs and its name is known")
    if isinstance(error, kinds.TimeoutError | TimeoutError):
        return TimedOutError(
            f"the cache at {url} does not answer in time",
            hint="raise `NEURON_ENV_CACHE_HTTP_TIMEOUT` if it is far away",
        )
    return UnavailableError(f"the connection to the cache at {url} breaks")
