"""Publishing an entry that was made elsewhere or earlier: without a lease, and never over another result."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import replace

from cache_server.manifest import Blob, Manifest
from cache_server.store import Put
from cache_server.tier import SharedStore
from cache_server.transfer.report import Fate, Item

# An epoch is one more than the last one. Nobody gets so far by compiling; a hostile one would leave no room above it.
_HIGHEST_EPOCH = 1 << 40


def publish(
    store: SharedStore,
    manifest: Manifest,
    put: Callable[[Blob], str],
    *,
    known: Manifest | None,
    name: str = "",
    sign: bool = True,
) -> Item:
    """Puts the blobs, then the manifest, unless the key has a NEFF.

    `known` is what the store has for the key; `put` puts a blob there and returns why it could not, or nothing.
    `sign`: with this process's key, if it has one. A remembered failure gives way to a NEFF, never the other way round.
    Raises StoreError.
    """
    key, size = manifest.key, sum(blob.size for blob in set(manifest.files.values()))
    name = name or key

    def item(fate: Fate, why: str = "") -> Item:
        return Item(name, fate, why, key, store.url, size, manifest.producer.compile_seconds)

    if manifest.epoch > _HIGHEST_EPOCH:
        return item(Fate.SKIPPED, f"its epoch is impossible: {manifest.epoch}")
    if manifest.failure is not None and manifest.failure.expires_at <= time.time():
        return item(Fate.SKIPPED, "the failure has expired")
    if known is not None and known.failure is None:
        return item(Fate.PRESENT, "" if manifest.failure or known.same_content(manifest) else "with other content")
    if known is not None and manifest.failure is not None:
        return item(Fate.PRESENT)
    for blob in sorted(set(manifest.files.values()), key=lambda blob: blob.sha256):
        if why := put(blob):
            return item(Fate.FAILED, why)
    if known is not None and known.epoch >= manifest.epoch:
        manifest = replace(manifest, epoch=known.epoch + 1, signature=None)
    became = store.put_manifest(store.signed(manifest) if sign else manifest)
    if became is Put.OTHER:
        return item(Fate.PRESENT, "with other content, made meanwhile")
    return item(Fate.MOVED if became is Put.CREATED else Fate.PRESENT)


def put_whole(store: SharedStore, blob: Blob, data: bytes | None) -> str:
    """Puts a blob that is in memory, None if it is missing, once it is verified. Why not, or nothing."""
    if data is None:
        return f"its blob {blob.sha256[:16]} is missing"
    if len(data) != blob.size or hashlib.sha256(data).hexdigest() != blob.sha256:
        return f"its blob {blob.sha256[:16]} does not have the digest that names it"
    store.put_blob(data)
    return ""
