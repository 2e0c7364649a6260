"""Who sends a request, by token or by client certificate."""

from __future__ import annotations

import asyncio
import base64
import binascii
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import ParamSpec, Protocol, TypeVar

from starlette.requests import HTTPConnection

from cache_server.errors import StoreError
from cache_server.service.errors import ProblemError, unauthorized
from cache_server.service.tls import CERTIFICATE_NAMES
from cache_server.trust.certificates import CertificateRules
from cache_server.trust.principal import Principal, Scope
from cache_server.trust.throttle import FailureLimit
from cache_server.trust.tokens import Token, TokenBook, TokenRecord

P = ParamSpec("P")
R = TypeVar("R")

_KNOWN = 10_000  # tokens remembered
_FRESH_SECONDS = 2.0  # how long a revocation, or the first token, may take to be heeded
_STALE_SECONDS = 60.0  # how long a store that does not answer leaves known tokens valid
_NOTE_SECONDS = 600.0  # between two notes of a token's last use


class Workers(Protocol):
    """Where blocking work runs: a service's Context."""

    async def call(self, act: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R: ...

    def spawn(self, name: str, work: Callable[[], object]) -> None: ...


@dataclass(slots=True)
class _Known:
    record: TokenRecord | None
    read_at: float
    noted_at: float = -math.inf


class IdentityGate:
    """Admits by bearer token, by a token as the password of HTTP Basic, or by a certificate that TLS has verified.

    A token wins over a certificate, and both over the anonymous scope, which requests without either get. With
    `unless_tokens` that is so only while the store has no tokens, and not for what a proxy passes on from elsewhere:
    what is convenient for a first trial must not stay open behind a proxy on the same host. Tokens are
    remembered for two seconds, so that is how long a revocation takes to reach every replica. Peers that fail often
    have to wait; a token that is known to be good is not kept waiting by its neighbours behind the same address.
    """

    def __init__(
        self,
        book: TokenBook,
        workers: Workers,
        *,
        anonymous: Scope,
        unless_tokens: bool = False,
        certificates: CertificateRules | None = None,
        limit: FailureLimit | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._book = book
        self._workers = workers
        self._anonymous = Principal("anonymous", anonymous)
        self._unless_tokens = unless_tokens and anonymous is not Scope.NONE
        self._looked_for_tokens = -math.inf
        self._certificates = certificates
        self._limit = limit or FailureLimit()
        self._clock = clock
        self._monotonic = monotonic
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._asked: dict[str, asyncio.Task[_Known]] = {}

    @property
    def mode(self) -> str:
        """One line for the person who starts the service: how clients identify themselves."""
        ways = "tokens, client certificates" if self._certificates else "tokens"
        scope = self._anonymous.scope
        without = "nothing" if scope is Scope.NONE else scope.name.lower()
        return f"{ways}; without: {without}{' until there is a token' if self._unless_tokens else ''}"

    async def knows_somebody(self) -> bool:
        """Whether there is a token, or a rule for certificates. Raises StoreError."""
        return self._certificates is not None or await self._workers.call(self._book.any)

    async def admit(self, request: HTTPConnection) -> Principal:
        """The sender. Raises ProblemError for credentials that are wrong, revoked, expired or tried too often."""
        header = request.headers.get("authorization")
        if header is not None:
            return await self._by_token(header, request)
        names: tuple[str, ...] = request.scope.get(CERTIFICATE_NAMES, ())
        if names and self._certificates is not None:
            principal = self._certificates.principal(names)
            if principal.scope is Scope.NONE:
                return Principal(principal.name, (await self._nobody(request)).scope)
            return principal
        return await self._nobody(request)

    async def _nobody(self, request: HTTPConnection) -> Principal:
        """Whoever shows no credentials."""
        if not self._unless_tokens:
            return self._anonymous
        now = self._monotonic()
        if now - self._looked_for_tokens >= _FRESH_SECONDS:
            if await self._workers.call(self._book.any):
                self._unless_tokens = False
                self._anonymous = Principal("anonymous", Scope.NONE)
                return self._anonymous
            self._looked_for_tokens = now
        proxied = any(name in request.headers for name in ("forwarded", "x-forwarded-for", "via"))
        return Principal("anonymous", Scope.NONE) if proxied else self._anonymous

    async def _by_token(self, header: str, request: HTTPConnection) -> Principal:
        peer = request.client.host if request.client else "unknown"
        token = _token_of(header, request)
        known = None if token is None else self._remembered(token.token_id, _FRESH_SECONDS)
        if known is None or known.record is None:
            self._refuse_if_tired(peer)
            if token is None:
                raise self._failure(peer, "the credentials hold no token of this cache")
            known = known or await self._ask(token.token_id)
        record = known.record
        assert token is not None
        if record is None or not record.matches(token):
            raise self._failure(peer, "this token is not known")
        if (state := record.state(self._clock())) != "valid":
            raise self._failure(peer, f"this token {'was revoked' if state == 'revoked' else 'has expired'}")
        self._note_use(known, record.token_id)
        return record.principal

    def _refuse_if_tired(self, peer: str) -> None:
        if (seconds := self._limit.wait(peer, self._monotonic())) > 0:
            raise ProblemError(
                "busy",
                "too many attempts with wrong credentials from this address",
                hint="correct the token, then try again",
                headers={"Retry-After": str(math.ceil(seconds))},
            )

    def _failure(self, peer: str, detail: str) -> ProblemError:
        self._limit.failed(peer, self._monotonic())
        return unauthorized(
            detail, hint="ask the administrator of the cache for one; `neuron-env cache token create` makes it"
        )

    def _remembered(self, token_id: str, seconds: float) -> _Known | None:
        known = self._known.get(token_id)
        return known if known is not None and self._monotonic() - known.read_at < seconds else None

    async def _ask(self, token_id: str) -> _Known:
        """What the store knows; one question at a time for each token, however many requests want to know."""
        task = self._asked.get(token_id)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._read(token_id))
            self._asked[token_id] = task
            task.add_done_callback(lambda _: self._asked.pop(token_id, None))
        return await asyncio.shield(task)

    async def _read(self, token_id: str) -> _Known:
        before = self._known.get(token_id)
        asked_at = self._monotonic()
        try:
            record = await self._workers.call(self._book.find, token_id)
        except StoreError:
            stale = self._remembered(token_id, _STALE_SECONDS)
            if stale is None or stale.record is None:
                raise
            return stale
        known = _Known(record, asked_at, before.noted_at if before else -math.inf)
        self._known[token_id] = known
        self._known.move_to_end(token_id)
        while len(self._known) > _KNOWN:
            self._known.popitem(last=False)
        return known

    def _note_use(self, known: _Known, token_id: str) -> None:
        now = self._monotonic()
        if now - known.noted_at >= _NOTE_SECONDS:
            known.noted_at = now
            moment = self._clock()
            self._workers.spawn("note of a token's use", lambda: self._book.note_use(token_id, now=moment))


def _token_of(header: str, request: HTTPConnection) -> Token | None:
    """The token in the header; None if there is none. Raises ProblemError for what a browser was led to send."""
    scheme, _, value = header.partition(" ")
    if scheme.lower() == "bearer":
        return Token.parse(value.strip())
    if scheme.lower() != "basic":
        return None
    # A browser adds a password that it knows to requests that another site made it send.
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise ProblemError("forbidden", "a password is not taken from requests that another site has made")
    try:
        text = base64.b64decode(value.strip(), validate=True).decode("ascii")
    except (ValueError, binascii.Error):
        return None
    return Token.parse(text.partition(":")[2])
