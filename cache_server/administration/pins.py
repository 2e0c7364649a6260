"""Pins: entries that no clean-up may take. One small object a key, so that pinning contends with nothing."""

from __future__ import annotations

import time

from cache_server.backends import Backend
from cache_server.fields import encode_object
from cache_server.leases.owner import Owner
from cache_server.names import check_digest, is_digest
from cache_server.store import Store

_LIMIT = 4096  # bytes


def pin(store: Store, key: str, owner: Owner) -> bool:
    """Keeps the entry of `key` from `rm` and `gc`; False if it was pinned. Raises StoreError."""
    note = {"key": key, "host": owner.host, "user": owner.user, "pinned_at": time.time()}
    return store.backend.create(_path(store.namespace, key), encode_object(note))


def unpin(store: Store, key: str) -> bool:
    """Takes the pin away; False if there was none. Raises StoreError."""
    path = _path(store.namespace, key)
    data = store.backend.read(path, _LIMIT)
    return data is not None and store.backend.remove_if(path, data)


def is_pinned(store: Store, key: str) -> bool:
    return store.backend.read(_path(store.namespace, key), _LIMIT) is not None


def pinned_keys(backend: Backend, namespace: str) -> set[str]:
    """Every pinned key of a namespace."""
    keys = {found.path.rpartition("/")[2] for found in backend.scan(f"pins/{namespace}")}
    return {key for key in keys if is_digest(key)}


def _path(namespace: str, key: str) -> str:
    return f"pins/{namespace}/{check_digest(key)[:2]}/{key}"
