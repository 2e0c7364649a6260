"""Entries from one store to another, such as that of another region, whatever either is kept in."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import replace

from cache_server.backends import pieces
from cache_server.errors import CacheError, DigestError, StoreError
from cache_server.jobs.shelf import JobShelf
from cache_server.manifest import Blob, Manifest
from cache_server.resilience.effort import effort_of
from cache_server.tier import SharedStore
from cache_server.transfer.crew import in_parallel
from cache_server.transfer.publish import publish
from cache_server.transfer.report import Fate, Item, Report

WORKERS = 4
_SECONDS = 30.0  # that an entry may lose to stores that do not answer


def copy(
    source: SharedStore,
    target: SharedStore,
    manifests: Iterable[Manifest],
    *,
    dry_run: bool = False,
    planned: Callable[[int], None] = lambda size: None,
    advanced: Callable[[int], None] = lambda size: None,
) -> Report:
    """Copies entries of `source`, blobs first; what the target has, entry or blob, is not sent again.

    So one that was interrupted goes on where it was when it is run again. Each blob passes in pieces and is verified on
    its way: memory does not grow with its size. A NEFF is never replaced. Signatures go along within a namespace.
    `planned` is told the bytes to come, `advanced` those that have come or need not, from any thread. Raises StoreError
    where not even the target's lookup works.
    """
    chosen = {manifest.key: manifest for manifest in manifests}
    known = target.read_manifests(chosen)
    lacking = [it for key, it in sorted(chosen.items()) if key not in known or _gives_way(known[key], it)]
    items = [
        _item(it, Fate.PRESENT, target, "" if it.failure or known[key].same_content(it) else "with other content")
        for key, it in sorted(chosen.items())
        if it not in lacking
    ]
    planned(sum(map(_size, lacking)))
    if dry_run:
        return Report.of([*items, *(_item(manifest, Fate.MOVED, target) for manifest in lacking)])

    def one(manifest: Manifest) -> Item:
        given = 0

        def told(size: int) -> None:
            nonlocal given
            given += size
            advanced(size)

        if source.namespace != target.namespace:
            manifest = replace(manifest, signature=None)  # it is for one namespace
        try:
            with effort_of(_SECONDS):
                item = publish(
                    target,
                    manifest,
                    lambda blob: copy_blob(source, target, blob, told),
                    known=known.get(manifest.key),
                    name=manifest.label or manifest.key,
                    sign=False,
                )
        except CacheError as error:
            item = _item(manifest, Fate.FAILED, target, error.message)
        advanced(_size(manifest) - given)
        return item

    return Report.of([*items, *in_parallel(one, lacking, size=lambda _: 0, workers=WORKERS)])


def copy_blob(source: SharedStore, target: SharedStore, blob: Blob, advanced: Callable[[int], None]) -> str:
    """Sends one blob in pieces, unless the target has it. Why it could not be sent, or nothing. Raises StoreError."""
    upload = target.begin_blob(blob)
    if upload is None:
        return ""
    try:
        content = source.open_blob(blob.sha256)
        if content is None:
            return f"its blob {blob.sha256[:16]} is missing"
        with contextlib.closing(content):
            if content.size != blob.size:
                return f"its blob {blob.sha256[:16]} is not {blob.size} bytes long"
            for piece in pieces(content):
                upload.append(piece)
                advanced(len(piece))
            upload.finish()
    except DigestError:
        return f"its blob {blob.sha256[:16]} does not have the digest that names it"
    finally:
        with contextlib.suppress(StoreError):  # it is thrown away where it is, too, in time
            upload.abort()
    return ""


def copy_job(source: JobShelf, target: JobShelf, job: str) -> None:
    """The records of a job, so that `prefetch --job` works where its entries went. Raises StoreError."""
    for part, data in source.records(job):
        target.put(job, part, data)


def _gives_way(there: Manifest, manifest: Manifest) -> bool:
    return there.failure is not None and manifest.failure is None


def _size(manifest: Manifest) -> int:
    return sum(blob.size for blob in set(manifest.files.values()))


def _item(manifest: Manifest, fate: Fate, target: SharedStore, why: str = "") -> Item:
    size = _size(manifest) if fate is Fate.MOVED else 0
    return Item(manifest.label or manifest.key, fate, why, manifest.key, target.url, size)
