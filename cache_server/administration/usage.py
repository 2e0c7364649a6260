"""When entries were last used: what the replicas of the service leave in the store for each other.

Each replica puts a batch of its uses into `usage/new/`, one object a minute at most. The collector merges them into
`usage/merged/` and removes them. Entries that no batch names were not used since they were made, as far as anybody
knows: jobs that read a directory or a bucket themselves leave no trace.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from cache_server.backends import Backend
from cache_server.fields import Fields, encode_object, parse_object

_SCHEMA = 1
_NEW, _MERGED = "usage/new", "usage/merged"
_LIMIT = 64 << 20
_SECONDS_LIMIT = 1e12


@dataclass(frozen=True, slots=True)
class Use:
    """The time of the last use in seconds since 1970, and how many there were."""

    at: float
    count: int = 1

    def __add__(self, other: Use) -> Use:
        return Use(max(self.at, other.at), self.count + other.count)


Uses = dict[tuple[str, str], Use]  # by namespace, and key or path


def put_batch(backend: Backend, replica: str, uses: Mapping[tuple[str, str], Use]) -> None:
    """Leaves `uses` for whoever collects. Raises StoreError."""
    if uses:
        name = f"{time.time_ns():020d}-{os.urandom(4).hex()}.json"
        backend.create(f"{_NEW}/{replica}/{name}", _encode(uses))


def read_uses(backend: Backend) -> Uses:
    """All that the store knows of last uses. Raises StoreError."""
    uses: Uses = {}
    for prefix in (_NEW, _MERGED):
        for found in backend.scan(prefix):
            _add(uses, _read(backend, found.path)[1])
    return uses


def merge_batches(backend: Backend, *, keep: Callable[[str, str], bool] = lambda namespace, name: True) -> Uses:
    """Merges what replicas left, removes their batches, and returns what was new. Raises StoreError.

    A merged name for which `keep` is false is forgotten. Killed in between, the uses of a batch may count twice; their
    times stay right.
    """
    batches = [(found.path, *_read(backend, found.path)) for found in backend.scan(_NEW)]
    fresh: Uses = {}
    for _, _, uses in batches:
        _add(fresh, uses)
    shards: dict[str, Uses] = {}
    for (namespace, name), use in fresh.items():
        shards.setdefault(_shard(namespace, name), {})[namespace, name] = use
    for path, uses in shards.items():
        _add(uses, _read(backend, path)[1])
        backend.write(path, _encode({place: use for place, use in uses.items() if keep(*place)}))
    for path, data, _ in batches:
        if data:
            backend.remove_if(path, data)
    return fresh


def _shard(namespace: str, name: str) -> str:
    # By the last digit of a key or path, so that an object stays small and few are written for a few uses.
    digit = name[-1] if name[-1:] in "0123456789abcdef" else "0"
    return f"{_MERGED}/{namespace}/{digit}.json"


def _add(uses: Uses, more: Mapping[tuple[str, str], Use]) -> None:
    for place, use in more.items():
        uses[place] = uses[place] + use if place in uses else use


def _encode(uses: Mapping[tuple[str, str], Use]) -> bytes:
    by_namespace: dict[str, dict[str, list[float]]] = {}
    for (namespace, name), use in uses.items():
        by_namespace.setdefault(namespace, {})[name] = [use.at, use.count]
    return encode_object({"schema": _SCHEMA, "uses": by_namespace})


def _read(backend: Backend, path: str) -> tuple[bytes, Uses]:
    """An object's content and its uses; nothing where it is gone, or is not one that this version understands."""
    data = backend.read(path, _LIMIT)
    if data is None:
        return b"", {}
    try:
        return data, dict(_decode(parse_object(data, limit=_LIMIT)))
    except ValueError:
        return b"", {}


def _decode(fields: Fields) -> Iterable[tuple[tuple[str, str], Use]]:
    if fields.integer("schema", low=1, high=1 << 20) != _SCHEMA:
        raise ValueError("written by a later version")
    for namespace, names in fields.object("uses").items():
        for name, value in Fields.of(names, namespace[:80]).items():
            if not isinstance(value, list) or len(value) != 2:
                raise ValueError("a use is a time and a count")
            pair = Fields({"at": value[0], "count": value[1]})
            at = pair.number("at", low=0, high=_SECONDS_LIMIT)
            yield (namespace, name), Use(at, pair.integer("count", low=0, high=1 << 62))
