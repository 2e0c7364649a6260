"""Bringing a job's entries to this host before it starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cache_server.errors import StoreError
from cache_server.local import LocalTier
from cache_server.manifest import NEFF_FILE, Manifest
from cache_server.outputs import fetch_outputs
from cache_server.tier import SharedStore
from cache_server.transfer.crew import in_parallel
from cache_server.transfer.report import Fate, Item, Report


def prefetch(
    store: SharedStore,
    local: LocalTier,
    keys: Mapping[str, str],
    *,
    dry_run: bool = False,
    planned: Callable[[int], None] = lambda size: None,
    advanced: Callable[[int], None] = lambda size: None,
) -> Report:
    """Fetches the NEFFs of `keys` (labels by key) that this host does not have, with one bulk lookup.

    `planned` is told the bytes to come, `advanced` those that have come, from any thread. A key without an entry is
    FAILED, a remembered failure SKIPPED. Raises StoreError where not even the lookup works.
    """
    here = [key for key in keys if local.holds(key)]
    wanted = [key for key in keys if key not in set(here)]
    found = store.read_manifests(wanted) if wanted else {}
    items = [Item(keys[key] or key, Fate.PRESENT, "", key, str(local.root)) for key in here]
    for key in wanted:
        if key not in found:
            items.append(Item(keys[key] or key, Fate.FAILED, "the store has no entry for it", key))
        elif found[key].failure is not None:
            items.append(Item(keys[key] or key, Fate.SKIPPED, "remembered to fail: a compile would fail too", key))
    good = [manifest for manifest in found.values() if manifest.failure is None]
    planned(sum(_size(manifest) for manifest in good))
    if dry_run:
        items += [_moved(manifest, keys, local) for manifest in good]
        return Report.of(items)

    def fetch(manifest: Manifest) -> Item:
        item = _moved(manifest, keys, local)
        try:
            neff = store.read_blob(manifest.files[NEFF_FILE])
            outputs = fetch_outputs(store, manifest)
        except StoreError as error:
            return _failed(item, error.message)
        if neff is None or outputs is None:
            return _failed(item, "its NEFF is missing or damaged in the store")
        seconds = manifest.producer.compile_seconds
        if not local.put(manifest.parts, neff, seconds, manifest=manifest, outputs=outputs):
            return _failed(item, f"it could not be written below {local.root}")
        advanced(item.size)
        return item

    return Report.of([*items, *in_parallel(fetch, good, size=_size)])


def _size(manifest: Manifest) -> int:
    return manifest.files[NEFF_FILE].size


def _moved(manifest: Manifest, keys: Mapping[str, str], local: LocalTier) -> Item:
    name = keys[manifest.key] or manifest.label or manifest.key
    seconds = manifest.producer.compile_seconds
    return Item(name, Fate.MOVED, "", manifest.key, str(local.root), _size(manifest), seconds)


def _failed(item: Item, why: str) -> Item:
    return Item(item.name, Fate.FAILED, why, item.key, "", item.size)
