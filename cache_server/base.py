"""The base of an overlay: NEFFs that came with an image or a snapshot, read where they lie and never written."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cache_server.errors import StoreError
from cache_server.keys import KeyParts
from cache_server.local import LocalHit, LocalTier
from cache_server.manifest import NEFF_FILE
from cache_server.outputs import fetch_outputs
from cache_server.resilience.effort import effort_of
from cache_server.storage import open_tier
from cache_server.store import LAYOUT
from cache_server.tier import SharedTier

if TYPE_CHECKING:
    from cache_server.trust.signatures import Trust, Verifier

log = logging.getLogger("neuron_env.cache")

_SECONDS = 5.0  # that a base behind a network may delay a request


class Base(Protocol):
    """`is_far`: worth a copy on this host."""

    is_far: bool

    def get(self, parts: KeyParts) -> LocalHit | None:
        """The verified NEFF; None if the base does not have it or cannot be read. Never raises."""
        ...


class StoreBase:
    """A base that is a store: a directory, a bucket, a service."""

    def __init__(self, tier: SharedTier, *, is_far: bool) -> None:
        self.is_far = is_far
        self._store = tier.store
        self._warned = False

    def get(self, parts: KeyParts) -> LocalHit | None:
        try:
            with effort_of(_SECONDS):
                manifest = self._store.read_manifest(parts.key)
                if manifest is None or manifest.failure is not None:
                    return None
                neff = self._store.read_blob(manifest.files[NEFF_FILE])
                outputs = fetch_outputs(self._store, manifest)
        except StoreError as error:
            log.log(logging.DEBUG if self._warned else logging.WARNING, "working without the base: %s", error)
            self._warned = True
            return None
        if neff is None or outputs is None:
            return None
        return LocalHit(neff, manifest.producer.compile_seconds, manifest, outputs)


class TreeBase:
    """A base in the local tier's layout, such as a copy of another host's local tier."""

    is_far = False

    def __init__(self, root: Path, verifier: Verifier | None = None, namespace: str = "default") -> None:
        self._tier = LocalTier(root, read_only=True, verifier=verifier, namespace=namespace)

    def get(self, parts: KeyParts) -> LocalHit | None:
        return self._tier.get(parts)


def open_base(place: str, namespace: str, trust: Trust | None = None) -> Base:
    """The base at a store's URL or a directory: one that holds a store is used as such. Raises CacheError."""
    if "://" in place and not place.startswith("file://"):
        return StoreBase(open_tier(place, namespace=namespace, read_only=True, trust=trust), is_far=True)
    root = Path(place.removeprefix("file://")).expanduser().absolute()
    if (root / LAYOUT).is_dir():
        return StoreBase(open_tier(str(root), namespace=namespace, read_only=True, trust=trust), is_far=False)
    return TreeBase(root, trust.verifier if trust else None, namespace)
