"""What passes through this process, counted in memory; listings by a scan of the store."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from cache_server.backends import Backend
from cache_server.manifest import Manifest
from cache_server.service.catalogue import Page, Query
from cache_server.store import Store

_MINUTES = 24 * 60
_RECENT = 50
_NAMESPACES = 1000  # counted apart; the rest goes together


@dataclass(slots=True)
class Counts:
    """Since the process began. `compiles_avoided` are hits on NEFFs, `seconds_saved` what their compiles took."""

    hits: int = 0
    misses: int = 0
    stores: int = 0
    compiles_avoided: int = 0
    seconds_saved: float = 0.0
    bytes_stored: int = 0

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class Tally:
    """Counters by namespace, a line a minute for a day, and the last failures. Safe from every thread."""

    counts: dict[str, Counts] = field(default_factory=dict)
    minutes: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_MINUTES))
    failures: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_RECENT))
    lock: threading.Lock = field(default_factory=threading.Lock)

    def used(self, namespace: str, manifest: Manifest) -> None:
        with self.lock:
            counts = self._of(namespace)
            counts.hits += 1
            if manifest.failure is None:
                counts.compiles_avoided += 1
                counts.seconds_saved += manifest.producer.compile_seconds
            self._minute()["hits"] += 1

    def missed(self, namespace: str) -> None:
        with self.lock:
            self._of(namespace).misses += 1
            self._minute()["misses"] += 1

    def published(self, namespace: str, manifest: Manifest) -> None:
        size = sum(blob.size for blob in manifest.files.values())
        with self.lock:
            counts = self._of(namespace)
            counts.stores += 1
            counts.bytes_stored += size
            minute = self._minute()
            minute["stores"] += 1
            minute["bytes"] += size
            if manifest.failure is not None:
                self.failures.appendleft(failure_summary(namespace, manifest))

    def to_json(self) -> dict[str, Any]:
        with self.lock:
            return {
                "namespaces": {name: counts.to_json() for name, counts in self.counts.items()},
                "history": list(self.minutes),
                "recent_failures": list(self.failures),
            }

    def _of(self, namespace: str) -> Counts:
        if namespace not in self.counts and len(self.counts) >= _NAMESPACES:
            namespace = "(others)"
        return self.counts.setdefault(namespace, Counts())

    def _minute(self) -> dict[str, Any]:
        at = int(time.time()) // 60 * 60
        if not self.minutes or self.minutes[-1]["at"] != at:
            self.minutes.append({"at": at, "hits": 0, "misses": 0, "stores": 0, "bytes": 0})
        return self.minutes[-1]


class TallyCatalogue:
    """The catalogue of a service without an index: complete, but each listing reads its namespace."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._tally = Tally()

    def start(self) -> None:
        return

    def close(self) -> None:
        return

    def used(self, namespace: str, manifest: Manifest) -> None:
        self._tally.used(namespace, manifest)

    def used_plain(self, namespace: str, path: str) -> None:
        return

    def missed(self, namespace: str, key: str) -> None:
        self._tally.missed(namespace)

    def published(self, namespace: str, manifest: Manifest) -> None:
        self._tally.published(namespace, manifest)

    def removed(self, namespace: str, key: str) -> None:
        return

    def pinned(self, namespace: str, key: str, pinned: bool) -> None:
        return

    def look_again(self) -> None:
        return

    def holding(self, namespace: str) -> dict[str, Any]:
        return {}

    def listing(self, namespace: str, query: Query) -> Page:
        every = list(Store(self._backend, namespace).entries())
        found = [
            summary(manifest)
            for manifest in every
            if manifest.key.startswith(query.prefix)
            and (query.kind is None or summary(manifest)["kind"] == query.kind)
            and (query.label is None or query.label in manifest.label)
        ]
        name = {"size": "size", "saved": "compile_seconds"}.get(query.sort, "created_at")
        found.sort(key=lambda entry: (-entry[name], entry["key"]))
        begin = 0
        if query.cursor is not None:
            if not (query.cursor.isascii() and query.cursor.isdigit() and len(query.cursor) < 10):
                raise ValueError("this cursor is of another listing")
            begin = int(query.cursor)
        end = begin + query.limit
        return Page(found[begin:end], str(end) if end < len(found) else None, len(every))

    def totals(self) -> dict[str, Any]:
        return {"totals": {}, "recent_evictions": [], **self._tally.to_json()}


def summary(manifest: Manifest) -> dict[str, Any]:
    """One line of a listing."""
    return {
        "key": manifest.key,
        "kind": "failure" if manifest.failure else "neff",
        "label": manifest.label,
        "size": sum(blob.size for blob in set(manifest.files.values())),
        "created_at": manifest.created_at,
        "epoch": manifest.epoch,
        "compile_seconds": manifest.producer.compile_seconds,
        "took_seconds": manifest.producer.compile_seconds,
        "host": manifest.producer.host,
        "compiler": manifest.producer.compiler,
    }


def failure_summary(namespace: str, manifest: Manifest) -> dict[str, Any]:
    """One of the `recent_failures` of `/v1/stats`."""
    failure = manifest.failure
    assert failure is not None
    return {
        "namespace": namespace,
        "key": manifest.key,
        "label": manifest.label,
        "kind": failure.kind.value,
        "text": failure.text[-2000:],
        "created_at": manifest.created_at,
        "expires_at": failure.expires_at,
        "host": manifest.producer.host,
    }
