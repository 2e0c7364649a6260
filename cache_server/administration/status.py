"""What a cache is and holds, at a glance."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cache_server.administration.locks import Hold, held_leases, sort_holds
from cache_server.administration.pins import pinned_keys
from cache_server.administration.snapshot import Snapshot, take_snapshot
from cache_server.backends import Found
from cache_server.errors import NotExclusiveError, StoreError
from cache_server.leases.probe import probe
from cache_server.names import is_digest
from cache_server.storage import Storage

# No lease may be silent for longer than an hour, so a record that did not change for two is of no compile on its way,
# even by a clock that is wrong.
RECENT = 2 * 3600.0

_NEFF = re.compile(r"[0-9a-f]{32}\.neff")


@dataclass(frozen=True, slots=True)
class Usage:
    """A number of things and their bytes."""

    count: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Details:
    """What only the manifests tell of a namespace. `saved_seconds` is by one hit on each entry.

    `obscure` are manifests of the store that cannot be understood; None where nobody looked for them.
    """

    neffs: Usage
    failures: int
    expired_failures: int
    saved_seconds: float
    obscure: int | None


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """What a service adds. Sizes are bytes, times seconds; `hits` and `misses` are those of the namespace, so far.

    `capacity`, `stored` and `reserved` are of the whole store, None where the asker may not know or there is no limit;
    `index_age` is the time since the service last looked through the store, None while it has not.
    """

    version: str
    replica: str
    uptime: float
    draining: bool
    reachable: bool
    capacity: int | None
    stored: int | None
    reserved: int | None
    quota: int | None
    used: int
    hits: int
    misses: int
    waiters: int
    index_age: float | None

    @property
    def hit_rate(self) -> float | None:
        """From 0 to 1; None before the first request."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else None


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """One namespace of a store. `leases` is `on`, `off` or `unproven`, and `verdict` says why.

    `entries` counts NEFFs and remembered failures. `blobs` and `quarantined` are those of all namespaces. What is None
    was not counted.
    """

    leases: str
    verdict: str
    entries: int
    pinned: int
    holds: tuple[Hold, ...]
    blobs: Usage | None
    quarantined: Usage | None
    details: Details | None
    service: ServiceStatus | None = None


def store_status(storage: Storage, *, now: float, details: bool = False) -> StoreStatus:
    """Counts what there is, and probes the store if it holds anything. `now` is wall time. Raises StoreError.

    Lists the store; with `details` it also reads every manifest and every lease record.
    """
    snapshot = take_snapshot(storage) if details else None
    backend, namespace = storage.store.backend, storage.store.namespace
    if snapshot is not None:
        blobs, count = list(snapshot.blobs.values()), len(snapshot.within(namespace))
        holds = sort_holds(seen for seen in snapshot.records if seen.namespace == namespace)
        empty = not (blobs or snapshot.entries or snapshot.records)
    else:
        blobs = [found for found in backend.scan("blobs") if is_digest(found.path.rpartition("/")[2])]
        count = sum(path.endswith(".json") for path in backend.walk(f"entries/{namespace}"))
        holds = held_leases(storage, since=now - RECENT)
        empty = not (blobs or count or holds)
    leases, verdict = _leases(storage, empty=empty)
    return StoreStatus(
        leases=leases,
        verdict=verdict,
        entries=count,
        pinned=len(pinned_keys(backend, namespace)),
        holds=tuple(holds),
        blobs=_usage(blobs),
        quarantined=_usage(backend.scan("quarantine")),
        details=None if snapshot is None else _details(snapshot, namespace, now),
    )


def local_usage(root: Path) -> Usage:
    """The NEFFs of a local tier; nothing if it does not exist or cannot be read."""
    sizes = []
    for path in _local_neffs(root):
        try:
            sizes.append(path.stat().st_size)
        except OSError:
            continue
    return Usage(len(sizes), sum(sizes))


def _usage(found: Iterable[Found]) -> Usage:
    sizes = [it.size for it in found]
    return Usage(len(sizes), sum(sizes))


def _details(snapshot: Snapshot, namespace: str, now: float) -> Details:
    entries = snapshot.within(namespace)
    failures = [entry.manifest.failure for entry in entries if entry.manifest.failure is not None]
    return Details(
        neffs=Usage(
            len(entries) - len(failures),
            sum(blob.size for blob in {blob for entry in entries for blob in entry.blobs}),
        ),
        failures=len(failures),
        expired_failures=sum(failure.expires_at <= now for failure in failures),
        saved_seconds=sum(entry.saved_seconds for entry in entries),
        obscure=len(snapshot.obscure),
    )


def _leases(storage: Storage, *, empty: bool) -> tuple[str, str]:
    if empty:
        # A look at a mistyped place must not create it.
        return "unproven", "the store is empty; the first compile tries whether it excludes"
    try:
        probe(storage.records)
    except NotExclusiveError as error:
        return "off", error.message
    except StoreError as error:
        return "unproven", error.message
    return "on", "of two who wrote one record, one was refused"


def _local_neffs(root: Path) -> Iterable[Path]:
    try:
        yield from (path for path in root.glob("[0-9a-f][0-9a-f]/[0-9a-f][0-9a-f]/*") if _NEFF.fullmatch(path.name))
    except OSError:
        return
