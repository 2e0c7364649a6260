"""What a store knows about one key: the files of its NEFF, or the failure that stands in their place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from cache_server.fields import Fields, encode_object, parse_object
from cache_server.keys import KeyParts
from cache_server.names import check_digest
from neuron_runtime.compiler.errors import FailureKind

SCHEMA = 1
MANIFEST_LIMIT = 1 << 20  # bytes; real ones have about 1,000
NEFF_FILE = "module.neff"
_TEXT_LIMIT = 16 * 1024  # characters of a compiler's message
_FILE_LIMIT = 64
_SIZE_LIMIT = 1 << 44  # bytes a file; no NEFF comes near it, and no reader reserves memory for more
_SECONDS_LIMIT = 1e12


class UnknownSchemaError(ValueError):
    """A manifest of a later version of this program: to be left alone, not to be quarantined."""


@dataclass(frozen=True, slots=True)
class Blob:
    """Immutable content: its SHA-256 in hexadecimal and its size in bytes."""

    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Producer:
    """Who compiled, with what, and how long it took. Times are seconds, `started_at` since 1970."""

    host: str
    pid: int
    user: str
    compiler: str
    started_at: float
    compile_seconds: float


@dataclass(frozen=True, slots=True)
class Failure:
    """A compiler error worth remembering until `expires_at` (seconds since 1970).

    `exit_code` is the status of the compiler's process, where there was one.
    """

    kind: FailureKind
    text: str
    expires_at: float
    exit_code: int | None = None


@dataclass(frozen=True, slots=True)
class Signature:
    """Who vouches for a manifest: `key_id` names the key, `value` is its signature in base64.

    `signed_at` is the signer's clock, in seconds since 1970. cache_server/trust/signatures.py says what is signed.
    """

    key_id: str
    signed_at: float
    value: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """One immutable entry. `epoch` is the lease's under which it was published, 0 where there was none."""

    parts: KeyParts
    files: dict[str, Blob]
    epoch: int
    producer: Producer
    created_at: float
    label: str = ""
    failure: Failure | None = None
    signature: Signature | None = None

    @property
    def key(self) -> str:
        return self.parts.key

    def same_content(self, other: Manifest) -> bool:
        """True when both give a reader the same bytes, whoever made them."""
        return self.failure is None and other.failure is None and self.files == other.files

    def to_json(self) -> dict[str, Any]:
        producer = self.producer
        value: dict[str, Any] = {
            "schema": SCHEMA,
            "kind": "failure" if self.failure else "neff",
            "key": self.key,
            "parts": self.parts.to_json(),
            "files": {name: {"sha256": blob.sha256, "size": blob.size} for name, blob in self.files.items()},
            "epoch": self.epoch,
            "created_at": float(self.created_at),
            "label": self.label[:200],
            "producer": {
                "host": producer.host,
                "pid": producer.pid,
                "user": producer.user,
                "compiler": producer.compiler,
                "started_at": float(producer.started_at),
                "compile_seconds": float(producer.compile_seconds),
            },
        }
        if self.failure:
            value["failure"] = {
                "kind": self.failure.kind.value,
                "text": self.failure.text[-_TEXT_LIMIT:],
                "expires_at": float(self.failure.expires_at),
            }
            if self.failure.exit_code is not None:
                value["failure"]["exit_code"] = self.failure.exit_code
        if self.signature:
            value["signature"] = {
                "key_id": self.signature.key_id,
                "signed_at": float(self.signature.signed_at),
                "value": self.signature.value,
            }
        return value

    def encode(self) -> bytes:
        return encode_object(self.to_json())


def decode_manifest(data: bytes, *, key: str) -> Manifest:
    """Reads the manifest of `key`.

    Raises ValueError that names what is wrong with it (its parts must hash to `key`), and UnknownSchemaError when a
    later version wrote it.
    """
    return manifest_from_fields(parse_object(data, limit=MANIFEST_LIMIT), key=key)


def manifest_from_fields(fields: Fields, *, key: str) -> Manifest:
    """Like `decode_manifest`, for a manifest inside another document."""
    if fields.integer("schema", low=1, high=10**6) != SCHEMA:
        raise UnknownSchemaError("written by a later version")
    kind = fields.text("kind", limit=20)
    parts = KeyParts.from_fields(fields.object("parts"))
    if fields.text("key", limit=64) != key or parts.key != key:
        raise ValueError("the key parts do not belong to this key")
    manifest = Manifest(
        parts=parts,
        files=_files(fields.object("files")),
        epoch=fields.integer("epoch", low=0, high=1 << 62),
        producer=_producer(fields.object("producer")),
        created_at=fields.number("created_at", low=0, high=_SECONDS_LIMIT),
        label=fields.text("label", limit=200, default=""),
        signature=_signature(fields),
    )
    if kind == "failure":
        return replace(manifest, files={}, failure=_failure(fields.object("failure")))
    if kind != "neff":
        raise ValueError(f"kind is neither neff nor failure: {kind!r}")
    if NEFF_FILE not in manifest.files:
        raise ValueError(f"files has no {NEFF_FILE}")
    return manifest


def _files(fields: Fields) -> dict[str, Blob]:
    items = fields.items()
    if len(items) > _FILE_LIMIT:
        raise ValueError(f"files has more than {_FILE_LIMIT} members")
    files = {}
    for name, value in items:
        entry = Fields.of(value, f"files.{name[:80]}")
        size = entry.integer("size", low=0, high=_SIZE_LIMIT)
        files[name] = Blob(check_digest(entry.text("sha256", limit=64)), size)
    return files


def _producer(fields: Fields) -> Producer:
    return Producer(
        host=fields.text("host", limit=300),
        pid=fields.integer("pid", low=0, high=1 << 62),
        user=fields.text("user", limit=300),
        compiler=fields.text("compiler", limit=500),
        started_at=fields.number("started_at", low=0, high=_SECONDS_LIMIT),
        compile_seconds=fields.number("compile_seconds", low=0, high=_SECONDS_LIMIT),
    )


def _signature(fields: Fields) -> Signature | None:
    """None for a form that this version does not know, too: whether it takes an unsigned manifest, the reader says."""
    try:
        signature = fields.object("signature")
        return Signature(
            key_id=signature.text("key_id", limit=64),
            signed_at=signature.number("signed_at", low=0, high=_SECONDS_LIMIT),
            value=signature.text("value", limit=200),
        )
    except ValueError:
        return None


def _failure(fields: Fields) -> Failure:
    return Failure(
        kind=FailureKind(fields.text("kind", limit=40)),
        text=fields.text("text", limit=_TEXT_LIMIT),
        expires_at=fields.number("expires_at", low=0, high=_SECONDS_LIMIT),
        exit_code=fields.integer("exit_code", low=-255, high=255) if "exit_code" in fields.raw() else None,
    )
