"""Signing manifests, and judging the signatures of others. Pure but for the warning that a refusal is worth."""

from __future__ import annotations

import base64
import binascii
import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from cache_server.errors import CacheError
from cache_server.fields import encode_object
from cache_server.manifest import Manifest, Signature
from cache_server.trust.keys import PublicKey, SigningKey, moment_text, parse_trusted_keys

log = logging.getLogger("neuron_env.cache")

_DOMAIN = b"neuron-env-cache manifest 1\0"


class Standing(StrEnum):
    """What a manifest's signature is worth to a reader."""

    TRUSTED = "trusted"
    UNSIGNED = "unsigned"
    UNKNOWN_KEY = "signed by an unknown key"
    TOO_OLD = "signed before its key is trusted from"
    FORGED = "wrongly signed"


def signed_bytes(manifest: Manifest, namespace: str, signed_at: float) -> bytes:
    """What a signature covers: all that a reader takes from the manifest, its namespace, and the time of signing.

    Made from the values, not from the document: what a reader does not understand cannot change what it does, and
    JSON's liberties (order, spacing, duplicate members) are none here. A label for the purpose stands first, so that
    the key can sign other things one day. Raises ValueError for text that no UTF-8 can hold.
    """
    value = replace(manifest, signature=None).to_json()
    return _DOMAIN + encode_object({"namespace": namespace, "signed_at": float(signed_at), "manifest": value})


@dataclass(frozen=True, slots=True)
class Signer:
    """Vouches for what this process publishes."""

    key: SigningKey
    clock: Callable[[], float] = time.time

    def sign(self, manifest: Manifest, namespace: str) -> Manifest:
        """The manifest with this signer's signature, in place of any other."""
        now = self.clock()
        value = base64.b64encode(self.key.sign(signed_bytes(manifest, namespace, now))).decode()
        return replace(manifest, signature=Signature(self.key.public.key_id, now, value))


class Verifier:
    """Decides which manifests a reader may use, and counts those that it may not.

    Where signatures are `required`, only those of the trusted keys will do. Where they are not, only one that claims to
    be of a trusted key and is not is refused: then somebody changed the manifest.
    """

    def __init__(self, keys: Iterable[PublicKey], *, required: bool) -> None:
        self.required = required
        self.refused = 0
        self._keys = {key.key_id: key for key in keys}
        self._warned: set[tuple[Standing, str, str]] = set()
        self._lock = threading.Lock()
        if required and not self._keys:
            raise CacheError(
                "signatures are required, but no key is trusted",
                hint="set `NEURON_ENV_CACHE_TRUSTED_KEYS` to the public keys, or to a file that holds them",
            )

    def standing(self, manifest: Manifest, namespace: str) -> Standing:
        """What the signature is worth for an entry of this namespace."""
        signature = manifest.signature
        if signature is None:
            return Standing.UNSIGNED
        key = self._keys.get(signature.key_id)
        if key is None:
            return Standing.UNKNOWN_KEY
        try:
            value = base64.b64decode(signature.value, validate=True)
            data = signed_bytes(manifest, namespace, signature.signed_at)
        except (ValueError, binascii.Error):
            return Standing.FORGED
        if not key.verifies(value, data):
            return Standing.FORGED
        return Standing.TRUSTED if signature.signed_at >= key.not_before else Standing.TOO_OLD

    def trusts(self, manifest: Manifest, namespace: str) -> bool:
        """Whether a trusted key vouches for it, required or not."""
        return self.standing(manifest, namespace) is Standing.TRUSTED

    def objection(self, manifest: Manifest, namespace: str) -> str | None:
        """Why a reader must not use the manifest; None if it may."""
        standing = self.standing(manifest, namespace)
        if standing is Standing.TRUSTED or not (self.required or standing is Standing.FORGED):
            return None
        signature = manifest.signature
        if signature is None:
            return standing.value
        text = f"{standing.value} ({_shown(signature.key_id, 16)})"
        return f"{text}, on {moment_text(signature.signed_at)}" if standing is Standing.TOO_OLD else text

    def accepts(self, manifest: Manifest, namespace: str, url: str) -> bool:
        """Whether a reader may use it. Counts a refusal, and warns at the first of each kind from each host."""
        objection = self.objection(manifest, namespace)
        if objection is None:
            return True
        host = manifest.producer.host
        seen = (self.standing(manifest, namespace), manifest.signature.key_id if manifest.signature else "", host)
        with self._lock:
            self.refused += 1
            first = seen not in self._warned and len(self._warned) < 1000
            if first:
                self._warned.add(seen)
        log.log(
            logging.WARNING if first else logging.DEBUG,
            "not used: the manifest of %s in namespace %s of the cache at %s is %s; it says that it was made on %s",
            manifest.key[:16],
            namespace,
            url,
            objection,
            _shown(host, 100),
        )
        return False


def _shown(text: str, limit: int) -> str:
    """Text of somebody who is not trusted, fit for a log."""
    return text[:limit].encode("unicode_escape").decode()


@dataclass(frozen=True, slots=True)
class Trust:
    """How a process verifies what it reads, and signs what it publishes if it has a key."""

    verifier: Verifier
    signer: Signer | None = None

    def accepts(self, manifest: Manifest, namespace: str, url: str) -> bool:
        """Whether this process may use a manifest found in the namespace at `url`. Tells and counts a refusal."""
        return self.verifier.accepts(manifest, namespace, url)

    def signed(self, manifest: Manifest, namespace: str) -> Manifest:
        """With this process's signature, if it has a key; as it is where a trusted key vouches for it already."""
        if self.signer is None or self.verifier.trusts(manifest, namespace):
            return manifest
        return self.signer.sign(manifest, namespace)

    @classmethod
    def of(cls, *, trusted_keys: str | None, required: bool, signing_key: Path | None) -> Trust | None:
        """From settings: None where nothing is to be signed or verified. A process trusts what it signs itself.

        Raises CacheError for keys that cannot be used.
        """
        if not trusted_keys and not required and signing_key is None:
            return None
        keys = parse_trusted_keys(trusted_keys) if trusted_keys else ()
        if signing_key is None:
            return cls(Verifier(keys, required=required))
        own = SigningKey.load(signing_key)
        return cls(Verifier((own.public, *keys), required=required), Signer(own))
