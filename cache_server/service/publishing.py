"""Putting a manifest where readers find it: only whole, only once its blobs are there."""

from __future__ import annotations

from collections.abc import Container

from cache_server.fields import Fields
from cache_server.leases.observer import Settled
from cache_server.manifest import NEFF_FILE, Manifest, UnknownSchemaError, manifest_from_fields
from cache_server.service.context import Context
from cache_server.service.errors import ProblemError, bad_request
from cache_server.service.watch import Sight, Watch
from cache_server.store import Put, Store


def read_manifest(fields: Fields, key: str) -> Manifest:
    """The manifest in a request. Raises ProblemError."""
    try:
        return manifest_from_fields(fields, key=key)
    except UnknownSchemaError:
        raise bad_request(
            "the manifest has a schema that this service does not know", hint="update the service before its clients"
        ) from None
    except ValueError as error:
        raise bad_request(f"not a manifest of this key: {error}") from None


def neff_digest(manifest: Manifest) -> str | None:
    """The SHA-256 of what a manifest makes readers run; None for a failure."""
    blob = manifest.files.get(NEFF_FILE)
    return blob.sha256 if blob else None


def missing_blobs(store: Store, manifest: Manifest, stored_here: Container[str] = ()) -> list[str]:
    """The digests of what the manifest names and the store does not have. May block.

    What others stored gets a new version, so that no replica removes it that does not know of this entry yet.
    """
    missing = set()
    for sha256 in {blob.sha256 for blob in manifest.files.values()}:
        if store.find_blob(sha256) is None:
            missing.add(sha256)
        elif sha256 not in stored_here:
            store.touch_blob(sha256)
    return sorted(missing)


async def prepare(context: Context, namespace: str, manifest: Manifest) -> Manifest:
    """The manifest as it may be published: its blobs are there, and it is signed if this service signs."""
    store = context.store(namespace)
    held = context.space.hold(namespace, manifest.files.values())
    missing = sorted(held.going.union(await context.call(missing_blobs, store, manifest, held.stored_here)))
    if missing:
        raise ProblemError(
            "missing-blobs",
            f"{len(missing)} of the entry's blobs are not in the store, such as {missing[0]}",
            hint="upload them, then publish again",
            missing=missing,
        )
    return store.signed(manifest)


async def list_entry(context: Context, namespace: str, manifest: Manifest) -> Put:
    """Puts a prepared manifest into the store, and tells the catalogue."""
    store = context.store(namespace)
    async with context.space.reserve(namespace, len(manifest.encode())):
        put = await context.call(store.put_manifest, manifest)
    if put is Put.CREATED:
        context.metrics.published.labels("failure" if manifest.failure else "neff").inc()
        context.index.published(namespace, manifest)
    return put


async def list_settled(context: Context, namespace: str, watch: Watch, sight: Sight) -> None:
    """Lists what a settled lease record carries, unless it is listed: whoever published it was killed right after."""
    verdict = sight.verdict
    if not isinstance(verdict, Settled) or watch.listed == sight.version:
        return
    watch.listed = sight.version
    store = context.store(namespace)
    if await context.call(store.read_manifest, watch.key) is not None:
        return
    # An entry that is being removed has its record freed first, so what is settled is meant to be there.
    if not await context.call(missing_blobs, store, verdict.manifest):
        await list_entry(context, namespace, verdict.manifest)
