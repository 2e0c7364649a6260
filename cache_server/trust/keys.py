"""Ed25519 keys: files of private ones, and the text form of public ones."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import os
import stat
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cache_server.errors import CacheError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_PREFIX = "ed25519:"
_FILE_LIMIT = 64 * 1024  # bytes


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that may be believed. What it signed before `not_before` (seconds since 1970) is not."""

    raw: bytes
    not_before: float = 0.0

    @property
    def key_id(self) -> str:
        """The first 64 bits of the key's SHA-256 in hexadecimal: a name, not a proof."""
        return hashlib.sha256(self.raw).hexdigest()[:16]

    @property
    def text(self) -> str:
        return _PREFIX + base64.b64encode(self.raw).decode()

    def verifies(self, value: bytes, data: bytes) -> bool:
        """Whether `value` is this key's signature of `data`."""
        crypto = _cryptography()
        try:
            crypto.Ed25519PublicKey.from_public_bytes(self.raw).verify(value, data)
        except crypto.InvalidSignature:
            return False
        return True


class SigningKey:
    """A private key. Its text and `repr` show the public half only."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        crypto = _cryptography()
        raw = private.public_key().public_bytes(crypto.Encoding.Raw, crypto.PublicFormat.Raw)
        self.public = PublicKey(raw)

    def __repr__(self) -> str:
        return f"SigningKey({self.public.key_id})"

    @classmethod
    def generate(cls) -> SigningKey:
        return cls(_cryptography().Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: Path) -> SigningKey:
        """The key in a PEM file (PKCS #8, unencrypted) that nobody but its owner may read.

        Raises CacheError for a file that is missing, that others may read, or that holds something else.
        """
        hint = f"make a key with `neuron-env cache key generate {path}`"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise CacheError(f"the signing key {path} cannot be read: {error.strerror}", hint=hint) from None
        with os.fdopen(descriptor, "rb") as file:
            mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
            if mode & 0o077:
                raise CacheError(
                    f"the signing key {path} is open to others (mode {mode:04o})", hint=f"type `chmod 600 {path}`"
                )
            data = file.read(_FILE_LIMIT)
        crypto = _cryptography()
        try:
            private = crypto.load_pem_private_key(data, password=None)
        except (ValueError, TypeError, crypto.UnsupportedAlgorithm):
            private = None
        if not isinstance(private, crypto.Ed25519PrivateKey):
            raise CacheError(f"{path} holds no unencrypted ed25519 private key in PEM", hint=hint)
        return cls(private)

    def save(self, path: Path) -> None:
        """Writes a new file with mode 0600. Raises CacheError if something is there, or if it cannot be written."""
        crypto = _cryptography()
        data = self._private.private_bytes(crypto.Encoding.PEM, crypto.PrivateFormat.PKCS8, crypto.NoEncryption())
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            raise CacheError(
                f"{path} exists, and a key that is lost cannot be had again", hint="choose another name"
            ) from None
        except OSError as error:
            raise CacheError(f"the key cannot be written to {path}: {error.strerror}") from None
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(descriptor)
        except OSError as error:
            with contextlib.suppress(OSError):
                path.unlink()
            raise CacheError(f"the key cannot be written to {path}: {error.strerror}") from None

    def sign(self, data: bytes) -> bytes:
        return self._private.sign(data)


def parse_trusted_keys(text: str) -> tuple[PublicKey, ...]:
    """The keys in `text`: one or more `ed25519:BASE64`, or the name of a file that has them, one a line.

    A line may go on with `not-before=TIME` (a date or a time in ISO 8601, UTC where it names no zone); what follows a
    `#` is a comment. Raises CacheError that names the first line it cannot use.
    """
    if text.lstrip().startswith(_PREFIX):
        keys = [_key_of(word, "the setting") for word in text.replace(",", " ").split()]
    else:
        path = Path(text.strip()).expanduser()
        try:
            with path.open(encoding="utf-8") as file:
                lines = file.read(_FILE_LIMIT).splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise CacheError(
                f"the trusted keys in {path} cannot be read: {getattr(error, 'strerror', None) or 'not a text'}",
                hint="give a file with one `ed25519:…` a line, or the keys themselves",
            ) from None
        keys = []
        for number, line in enumerate(lines, 1):
            if content := line.partition("#")[0].strip():
                keys.append(_key_of(content, f"line {number} of {path}"))
    if not keys:
        raise CacheError("no trusted key is given", hint="type `neuron-env cache key show FILE` for the text of a key")
    return tuple(keys)


def _key_of(content: str, where: str) -> PublicKey:
    word, *options = content.split()
    try:
        if not word.startswith(_PREFIX):
            raise ValueError("it does not begin with ed25519:")
        raw = base64.b64decode(word.removeprefix(_PREFIX), validate=True)
        if len(raw) != 32:
            raise ValueError(f"it has {len(raw)} bytes instead of 32")
        not_before = 0.0
        for option in options:
            name, _, value = option.partition("=")
            if name != "not-before":
                raise ValueError(f"there is no option {name!r}")
            not_before = _moment(value)
    except (ValueError, binascii.Error) as error:
        raise CacheError(
            f"{where} holds no public key: {error}",
            hint="a key looks like ed25519:BASE64, perhaps followed by not-before=2026-01-31",
        ) from None
    return PublicKey(raw, not_before)


def _moment(text: str) -> float:
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def moment_text(seconds: float) -> str:
    """Seconds since 1970 as people read them, in UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def _cryptography() -> Any:
    try:
        from cache_server.trust import _ed25519
    except ModuleNotFoundError as error:
        raise CacheError(
            f"signatures need the package `{error.name}`, which is not installed",
            hint="type `pip install 'neuron-env[signatures]'`",
        ) from None
    return _ed25519
