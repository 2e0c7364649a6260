"""Bearer tokens: made here, shown once, kept as hashes in the store that all replicas share."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from cache_server.backends import Backend
from cache_server.errors import CacheError, StoreError
from cache_server.fields import encode_object, parse_object
from cache_server.names import check_namespace
from cache_server.trust.principal import Principal, Scope

# The prefix is for scanners that look for secrets in places where none should be.
_TOKEN = re.compile(r"nec_(?P<id>[0-9a-f]{16})_(?P<secret>[0-9a-f]{64})")
_ID = re.compile(r"[0-9a-f]{16}")
_DOMAIN = b"neuron-env-cache token 1\0"
_LIMIT = 64 * 1024  # bytes of a token's record
_NAME_LIMIT = 100


class Token:
    """A secret that stands for somebody. Neither its `str` nor its `repr` shows it; `reveal` does."""

    __slots__ = ("_secret", "token_id")

    def __init__(self, token_id: str, secret: str) -> None:
        self.token_id = token_id
        self._secret = secret

    def __repr__(self) -> str:
        return f"Token({self.token_id})"

    @classmethod
    def mint(cls) -> Token:
        return cls(secrets.token_hex(8), secrets.token_hex(32))

    @classmethod
    def parse(cls, text: str) -> Token | None:
        """None for what is not a token."""
        match = _TOKEN.fullmatch(text)
        return None if match is None else cls(match["id"], match["secret"])

    def reveal(self) -> str:
        return f"nec_{self.token_id}_{self._secret}"

    def digest(self) -> str:
        """What is kept of it.

        One round of SHA-256 does: the secret is 256 random bits, so there is nothing to guess that a slow hash would
        protect, and a slow one would let anybody keep the service busy.
        """
        return hashlib.sha256(_DOMAIN + self.reveal().encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """What the store knows of a token. `namespaces` None means all; times are seconds since 1970."""

    token_id: str
    digest: str
    name: str
    scope: Scope
    namespaces: frozenset[str] | None
    created_at: float
    created_by: str
    expires_at: float | None = None
    revoked_at: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= _NAME_LIMIT or not self.name.isprintable():
            raise ValueError(f"a token's name has 1 to {_NAME_LIMIT} printable characters")
        if self.scope is Scope.NONE:
            raise ValueError("a token has a scope: read, write or admin")

    @property
    def principal(self) -> Principal:
        return Principal(f"token:{self.name}", self.scope, self.namespaces)

    def matches(self, token: Token) -> bool:
        """Whether this is the token's record, told in a time that says nothing of how near a guess was."""
        return hmac.compare_digest(self.digest, token.digest())

    def state(self, now: float) -> str:
        """`valid`, `revoked` or `expired`."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "valid"

    def encode(self) -> bytes:
        return encode_object(
            {
                "schema": 1,
                "id": self.token_id,
                "sha256": self.digest,
                "name": self.name,
                "scope": self.scope.name.lower(),
                "namespaces": ["*"] if self.namespaces is None else sorted(self.namespaces),
                "created_at": self.created_at,
                "created_by": self.created_by,
                "expires_at": self.expires_at,
                "revoked_at": self.revoked_at,
            }
        )


def decode_token_record(data: bytes, *, token_id: str) -> TokenRecord:
    """Reads the record of a token. Raises ValueError that names what is wrong: a token that is unclear is none."""
    fields = parse_object(data, limit=_LIMIT)
    if fields.integer("schema", low=1, high=10**6) != 1:
        raise ValueError("written by a later version")
    if fields.text("id", limit=16) != token_id:
        raise ValueError("it belongs to another token")
    names = fields.texts("namespaces", count=1000, limit=64)
    if not names:
        raise ValueError("namespaces is empty")
    try:
        namespaces = None if names == ("*",) else frozenset(check_namespace(name) for name in names)
    except CacheError as error:
        raise ValueError(error.message) from None

    def moment(name: str) -> float | None:
        return None if fields.raw().get(name) is None else fields.number(name, low=0, high=1e12)

    return TokenRecord(
        token_id=token_id,
        digest=fields.text("sha256", limit=64),
        name=fields.text("name", limit=_NAME_LIMIT),
        scope=Scope.named(fields.text("scope", limit=10)),
        namespaces=namespaces,
        created_at=fields.number("created_at", low=0, high=1e12),
        created_by=fields.text("created_by", limit=400),
        expires_at=moment("expires_at"),
        revoked_at=moment("revoked_at"),
    )


class TokenBook:
    """The tokens of a store, one small object each, below `tokens/`. Methods raise StoreError."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def create(
        self,
        name: str,
        scope: Scope,
        namespaces: frozenset[str] | None,
        *,
        now: float,
        created_by: str,
        expires_at: float | None = None,
    ) -> tuple[Token, TokenRecord]:
        """Makes a token, which cannot be had again: the store keeps its hash. Raises ValueError for a bad name."""
        token = Token.mint()
        record = TokenRecord(token.token_id, token.digest(), name, scope, namespaces, now, created_by, expires_at)
        if not self._backend.create(_path(token.token_id), record.encode()):
            raise StoreError(f"a token {token.token_id} exists already in {self._backend.url}")
        return token, record

    def find(self, token_id: str) -> TokenRecord | None:
        """None if there is none, or if its record cannot be understood."""
        if _ID.fullmatch(token_id) is None:
            return None
        data = self._backend.read(_path(token_id), _LIMIT)
        if data is None:
            return None
        try:
            return decode_token_record(data, token_id=token_id)
        except ValueError:
            return None

    def revoke(self, token_id: str, *, now: float) -> TokenRecord | None:
        """Ends a token for good; None if there is none. The record stays, to tell who had access."""
        record = self.find(token_id)
        if record is None or record.revoked_at is not None:
            return record
        revoked = replace(record, revoked_at=now)
        self._backend.write(_path(token_id), revoked.encode())
        return revoked

    def records(self) -> list[TokenRecord]:
        """All that can be understood, the latest first. For administration: lists."""
        found = [record for token_id in self._ids() if (record := self.find(token_id)) is not None]
        return sorted(found, key=lambda record: record.created_at, reverse=True)

    def any(self) -> bool:
        """Whether there is a token, of whatever state."""
        return next(iter(self._ids()), None) is not None

    def note_use(self, token_id: str, *, now: float) -> None:
        """Remembers that a token was used, in an object of its own: no use can undo a revocation."""
        self._backend.write(_used_path(token_id), encode_object({"used_at": now}))

    def used_at(self, token_id: str) -> float | None:
        """When it was last used, to within the time that its users wait between two notes."""
        data = self._backend.read(_used_path(token_id), _LIMIT)
        if data is None:
            return None
        try:
            return parse_object(data, limit=_LIMIT).number("used_at", low=0, high=1e12)
        except ValueError:
            return None

    def _ids(self) -> Iterator[str]:
        for path in self._backend.walk("tokens"):
            token_id = path.removeprefix("tokens/").removesuffix(".json")
            if path.endswith(".json") and _ID.fullmatch(token_id):
                yield token_id


def describe(record: TokenRecord, *, now: float, used_at: float | None) -> dict[str, Any]:
    """The record for people and programs, without the hash."""
    return {
        "id": record.token_id,
        "name": record.name,
        "scope": record.scope.name.lower(),
        "namespaces": ["*"] if record.namespaces is None else sorted(record.namespaces),
        "state": record.state(now),
        "created_at": record.created_at,
        "created_by": record.created_by,
        "expires_at": record.expires_at,
        "revoked_at": record.revoked_at,
        "used_at": used_at,
    }


def _path(token_id: str) -> str:
    return f"tokens/{token_id}.json"


def _used_path(token_id: str) -> str:
    return f"tokens/{token_id}.used"
