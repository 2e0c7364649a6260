"""Shared by the tests of trust: keys, signed and unsigned stores, and a writer that has no key."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from cache_kit import parts

from cache_server import CacheSettings, NeffCache
from cache_server.keys import KeyParts
from cache_server.manifest import NEFF_FILE, Blob, Manifest, Producer
from cache_server.storage import Storage, open_storage
from cache_server.store import Store
from cache_server.trust.keys import PublicKey, SigningKey
from cache_server.trust.signatures import Signer, Trust, Verifier

GOOD, EVIL = b"what the service vouches for", b"what an attacker would like to run"


def manifest_of(blob: Blob, *, key_parts: KeyParts | None = None, epoch: int = 1, host: str = "h") -> Manifest:
    producer = Producer(host, 7, "user", "cc 2.0", 1000.0, 12.5)
    return Manifest(key_parts or parts(), {NEFF_FILE: blob}, epoch, producer, time.time(), "the graph")


@dataclass
class Fleet:
    """A shared directory with a service's key, readers that require it, and somebody who can write but has no key."""

    tmp: Path
    key: SigningKey = field(default_factory=SigningKey.generate)

    @property
    def url(self) -> str:
        return str(self.tmp / "shared")

    def service(self, namespace: str = "default", key: SigningKey | None = None) -> Store:
        """The store as who has the key opens it."""
        key = key or self.key
        return self._storage(namespace, Trust(Verifier([key.public], required=False), Signer(key))).store

    def attacker(self, namespace: str = "default") -> Storage:
        return self._storage(namespace, None)

    def reader(self, namespace: str = "default", *, required: bool = True, keys: tuple[PublicKey, ...] = ()) -> Storage:
        return self._storage(namespace, Trust(Verifier(keys or [self.key.public], required=required)))

    def publish(
        self, neff: bytes = GOOD, *, namespace: str = "default", epoch: int = 1, ir: str = "module {}"
    ) -> Manifest:
        """An entry as the service leaves it."""
        store = self.service(namespace)
        manifest = store.signed(manifest_of(store.put_blob(neff), epoch=epoch, key_parts=parts(ir)))
        store.put_manifest(manifest)
        return manifest

    def job(self, host: str = "reader", **settings: object) -> NeffCache:
        """The cache of a job that requires signatures."""
        given = {"trusted_keys": self.key.public.text, "require_signature": True, **settings}
        return NeffCache.open(settings=CacheSettings(self.url, self.tmp / f"local-{host}", **given))  # type: ignore[arg-type]

    def _storage(self, namespace: str, trust: Trust | None) -> Storage:
        return open_storage(self.url, namespace=namespace, trust=trust)


def overwrite(storage: Storage, manifest: Manifest) -> None:
    """Puts a manifest there whatever was there before, as only a direct writer can."""
    store = storage.store
    store.backend.write(entry_path(store, manifest.key), manifest.encode())


def entry_path(store: Store, key: str) -> str:
    return f"entries/{store.namespace}/{key[:2]}/{key}.json"


def blob_path(blob: Blob) -> str:
    return f"blobs/sha256/{blob.sha256[:2]}/{blob.sha256}"


def evil(storage: Storage, like: Manifest) -> Manifest:
    """The attacker's manifest: everything as in `like`, but another NEFF."""
    return replace(like, files={NEFF_FILE: storage.store.put_blob(EVIL)})
