"""Entries for NEFFs whose key is TorchNeuron's own: of what it was made is not known, the compiler is no part of it."""

from __future__ import annotations

import hashlib
import re
import time

from cache_server.errors import CacheError
from cache_server.keys import KeyParts
from cache_server.leases.owner import Owner
from cache_server.manifest import NEFF_FILE, Blob, Manifest, Producer

COMPILER = "torch-neuronx"
_FLAG = "--torch-neuronx-key="
_SHORT = re.compile(r"[0-9a-f]{32}")
_RELEASE = re.compile(r"[\w.+-]{1,150}")


def check_release(text: str) -> str:
    """Returns `text`. Raises CacheError unless it can name a release of the vendor's software."""
    if _RELEASE.fullmatch(text) is None:
        raise CacheError(
            f"not a name of a release: {text[:160]!r}",
            hint="use letters, digits, dots, plus and minus, such as 2.28.7631.0+torch-neuronx-2.14.3.0",
        )
    return text


def foreign_parts(short_key: str, release: str) -> KeyParts:
    """The parts under which a NEFF of TorchNeuron's key is shared among hosts with the same release."""
    digest = hashlib.sha256(f"torch-neuronx {short_key}".encode()).hexdigest()
    return KeyParts(digest, COMPILER, release, (f"{_FLAG}{short_key}",), "as in its key", 1)


def short_key_of(parts: KeyParts, release: str) -> str | None:
    """TorchNeuron's key of an entry of this release; None for any other entry."""
    if parts.compiler != COMPILER or parts.compiler_version != release or len(parts.flags) != 1:
        return None
    short_key = parts.flags[0].removeprefix(_FLAG)
    # What names a file comes from a store that others write to.
    known = _SHORT.fullmatch(short_key) is not None and parts == foreign_parts(short_key, release)
    return short_key if known else None


def foreign_manifest(short_key: str, release: str, neff: bytes, made_at: float, owner: Owner) -> Manifest:
    """The entry for a NEFF that TorchNeuron kept at `made_at`, in seconds since 1970."""
    return Manifest(
        parts=foreign_parts(short_key, release),
        files={NEFF_FILE: Blob(hashlib.sha256(neff).hexdigest(), len(neff))},
        epoch=0,
        producer=Producer(owner.host, owner.pid, owner.user, f"{COMPILER} {release}", max(made_at, 0.0), 0.0),
        created_at=time.time(),
        label=short_key,
    )
