"""Publishing what this host compiled while the store was away."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace

from cache_server.errors import StoreError
from cache_server.local import LocalTier
from cache_server.manifest import NEFF_FILE, Blob, Manifest
from cache_server.outputs import file_name, is_output
from cache_server.tier import SharedStore
from cache_server.transfer.crew import in_parallel
from cache_server.transfer.publish import publish, put_whole
from cache_server.transfer.report import Fate, Item, Report


def push(
    local: LocalTier,
    store: SharedStore,
    *,
    only: Container[str] | None = None,
    dry_run: bool = False,
    planned: Callable[[int], None] = lambda size: None,
    advanced: Callable[[int], None] = lambda size: None,
) -> Report:
    """Uploads the NEFFs of the local tier that the store lacks; with `only`, those among these keys.

    `planned` is told the bytes to go, `advanced` those that have gone, from any thread. What the local tier has without
    a description (TorchNeuron's own, or from before there were any) is not seen. Raises StoreError where not even the
    lookup works.
    """
    here = {it.key: it for it in local.manifests() if only is None or it.key in only}
    known = store.read_manifests(here)
    lacking = [it for key, it in here.items() if key not in known or known[key].failure is not None]
    items = [_item(it, Fate.PRESENT, store) for key, it in here.items() if it not in lacking]
    planned(sum(_size(manifest) for manifest in lacking))
    if dry_run:
        return Report.of([*items, *(_item(manifest, Fate.MOVED, store) for manifest in lacking)])

    def upload(manifest: Manifest) -> Item:
        def put(blob: Blob) -> str:
            hit = local.get(manifest.parts)
            if hit is None:
                return put_whole(store, blob, None)
            named = {file_name(name): data for name, data in hit.outputs.items()} | {NEFF_FILE: hit.neff}
            return put_whole(store, blob, next((named.get(name) for name in files if files[name] == blob), None))

        files = {name: blob for name, blob in manifest.files.items() if name == NEFF_FILE or is_output(name)}
        # A signature is bound to the namespace that it was made for, an epoch to a lease. This is a new publication.
        fresh = replace(manifest, epoch=0, signature=None, files=files)
        name = manifest.label or manifest.key
        try:
            item = publish(store, fresh, put, known=known.get(manifest.key), name=name)
        except StoreError as error:
            return _item(manifest, Fate.FAILED, store, error.message)
        advanced(item.size)
        return item

    return Report.of([*items, *in_parallel(upload, lacking, size=_size)])


def _size(manifest: Manifest) -> int:
    return manifest.files[NEFF_FILE].size


def _item(manifest: Manifest, fate: Fate, store: SharedStore, why: str = "") -> Item:
    size = _size(manifest) if fate is Fate.MOVED else 0
    return Item(manifest.label or manifest.key, fate, why, manifest.key, store.url, size)
