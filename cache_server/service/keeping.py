"""The index and the space of one service: what its routes call, and what runs beside them."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from cache_server.errors import NotExclusiveError
from cache_server.leases.probe import probe
from cache_server.manifest import Blob, Manifest
from cache_server.service.admission import Held
from cache_server.service.catalogue import Page, Query
from cache_server.service.context import Context
from cache_server.service.index import EntryRow, Index
from cache_server.service.space import Collector, Evictor, InFlight, Limits, Room, Space
from cache_server.service.space.collector import Pace
from cache_server.service.space.disk import DirectoryDisk, Disk, NoDisk
from cache_server.service.space.election import Election
from cache_server.service.streams import Call
from cache_server.service.tally import Counts
from cache_server.storage import Storage
from neuron_runtime.compiler.errors import FailureKind

T = TypeVar("T")

_OWN_WRITES_SECONDS = 1.0  # how long a listing waits for the index to have what was published before it
_WAITING_ADMISSIONS = 4  # threads; they have their own, so that nobody who reads waits for an eviction


class Keeping:
    """Index, space, collector and election over the store of `context`: its catalogue and its admission in one.

    The first half is the `Catalogue` protocol, the second the `Space` protocol of the routes.
    """

    def __init__(self, context: Context, *, pace: Pace | None = None) -> None:
        settings = context.settings
        self._scratch = tempfile.TemporaryDirectory(prefix="neuron-env-index-") if settings.state_dir is None else None
        directory = Path(self._scratch.name) if self._scratch else settings.state_dir
        assert directory is not None
        storage = Storage(context.store("default"), context.records)
        self._pace = pace or Pace()
        self._call = context.call
        self._audit, self._replica = context.audit, context.replica
        self._stopped = threading.Event()
        self._collector: Collector | None = None
        self._index = Index(directory, context.backend.url, grace=self._pace.grace, on_new=self._index_is_new)
        self._in_flight = InFlight()
        evictor = Evictor(storage, self._index, self._in_flight, on_evicted=self._tell_eviction)
        self._space = Space(
            Limits(
                settings.capacity,
                settings.quota,
                settings.quotas,
                settings.max_age,
                settings.max_ages,
                settings.keep_free,
            ),
            context.backend,
            self._index,
            evictor,
            self._in_flight,
            _disk_of(context),
            wait_for_index=lambda: self._collector is not None and self._collector.wait_for_scan(),
            on_fullness=self._wake,
        )
        self._election = Election(context.records, excludes=lambda: _excludes(context), on_elected=self._wake)
        self._collector = Collector(
            storage,
            self._index,
            self._space,
            evictor,
            self._election,
            replica=context.replica,
            pace=self._pace,
            stopped=self._stopped,
        )
        self._admissions = ThreadPoolExecutor(_WAITING_ADMISSIONS, thread_name_prefix="neuron-env-room")
        self._evicted = _measure(context, self._index, self._space, self._election)

    def start(self) -> None:
        assert self._collector is not None
        self._election.start()
        self._collector.start()

    def close(self) -> None:
        assert self._collector is not None
        self._stopped.set()
        self._admissions.shutdown(wait=True, cancel_futures=True)
        self._collector.close()
        self._election.close()
        self._index.close()
        if self._scratch is not None:
            self._scratch.cleanup()

    def used(self, namespace: str, manifest: Manifest) -> None:
        self._index.use(namespace, manifest.key, time.time())
        if manifest.failure is None:
            seconds = manifest.producer.compile_seconds
            self._index.count(namespace, hits=1, compiles_avoided=1, seconds_saved=seconds)
        else:
            self._index.count(namespace, hits=1)

    def used_plain(self, namespace: str, path: str) -> None:
        self._index.use(namespace, path, time.time())

    def missed(self, namespace: str, key: str) -> None:
        self._index.count(namespace, misses=1)

    def published(self, namespace: str, manifest: Manifest) -> None:
        now = time.time()
        # Imported ones were made long ago; to be stored counts as a use, here and for the other replicas.
        row = replace(EntryRow.of_manifest(namespace, manifest, own_bytes=len(manifest.encode())), used_at=now)
        digests = [blob.sha256 for blob in row.blobs]
        self._index.put_entry(row, done=lambda: self._in_flight.named(digests))
        self._index.use(namespace, manifest.key, now, count=0)
        self._index.count(namespace, stores=1, bytes_stored=row.size, bytes=row.size)

    def removed(self, namespace: str, key: str) -> None:
        self._index.remove_entry(namespace, key)

    def listing(self, namespace: str, query: Query) -> Page:
        if query.cursor is None:
            self._index.flush(within=_OWN_WRITES_SECONDS)  # who lists sees what they have just published
        rows, cursor = self._index.listing(
            namespace,
            limit=query.limit,
            cursor=query.cursor,
            kind=query.kind,
            label=query.label,
            sort=query.sort,
            prefix=query.prefix,
        )
        stock = self._index.stock.of(namespace)
        return Page([row.to_json() for row in rows], cursor, stock.entries + stock.failures, self._index.looked_through)

    def pinned(self, namespace: str, key: str, pinned: bool) -> None:
        self._index.set_pinned(namespace, key, pinned)

    def look_again(self) -> None:
        assert self._collector is not None
        self._collector.look_again()

    def holding(self, namespace: str) -> dict[str, Any]:
        return self._index.holding(namespace, now=time.time())

    def totals(self) -> dict[str, Any]:
        stock, found, limits = self._index.stock, self._index.statistics(), self._space.limits
        namespaces = {}
        for name in sorted({*stock.namespaces, *found["counters"]}):
            has, counted = stock.of(name), found["counters"].get(name, {})
            namespaces[name] = {
                "entries": has.entries,
                "failures": has.failures,
                "plain": has.plain,
                "bytes": has.bytes,
                "quota_bytes": limits.quota_of(name),
                **Counts().to_json(),
                "evictions": 0,
                "evicted_bytes": 0,
                **{counter: _whole(value) for counter, value in counted.items() if counter != "bytes"},
            }
        return {
            "totals": {
                "entries": sum(it.entries for it in stock.namespaces.values()),
                "failures": sum(it.failures for it in stock.namespaces.values()),
                "plain": sum(it.plain for it in stock.namespaces.values()),
                "bytes": stock.bytes,
                "blobs": stock.blobs,
                "capacity_bytes": limits.capacity,
                "reserved_bytes": self._space.promised,
                "complete": self._index.complete,
                "scanned_at": self._index.scanned_at,
                "collects": self._election.elected,
            },
            "namespaces": namespaces,
            "recent_failures": [_failure(row) for row in found["recent_failures"]],
            "recent_evictions": [{**it, "key": it["key"].rpartition("/")[2]} for it in found["recent_evictions"]],
            "history": [
                {"at": it["at"], **{name: _whole(it.get(name, 0)) for name in ("hits", "misses", "stores", "bytes")}}
                for it in found["history"]
            ],
        }

    def reserve(self, namespace: str, size: int, path: str = "") -> _Reservation:
        return _Reservation(self._space, self._admitted, self._call, (namespace, size, path))

    def hold(self, namespace: str, blobs: Iterable[Blob]) -> Held:
        return self._space.hold(namespace, blobs)

    async def collect(self, *, dry_run: bool, namespace: str | None = None) -> dict[str, Any]:
        assert self._collector is not None
        round_ = self._collector.round
        return await self._in_admissions(lambda: round_(dry_run=dry_run))

    async def _admitted(self, namespace: str, size: int, path: str) -> Room:
        return await self._in_admissions(lambda: self._space.admit(namespace, size, path), self._space.give_back)

    async def _in_admissions(self, act: Callable[[], T], undo: Callable[[T], None] = lambda result: None) -> T:
        """Runs `act` in a thread; `undo` gets its result if nobody waits for it any more."""
        import asyncio

        future = self._admissions.submit(act)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if not future.cancel():
                future.add_done_callback(lambda it: None if it.exception() else undo(it.result()))
            raise

    def _index_is_new(self) -> None:
        if self._collector is not None:
            self._collector.ask_for_scan()

    def _wake(self) -> None:
        if self._collector is not None:
            self._collector.wake()

    def _tell_eviction(self, row: EntryRow, reason: str, freed: int) -> None:
        self._evicted(reason, freed)
        self._audit.record(
            "evict",
            principal=f"replica:{self._replica}",
            result="ok",
            namespace=row.namespace,
            key=row.key,
            reason=reason,
            freed_bytes=freed,
        )


class _Reservation:
    """Room from entry to exit: `admission.Space.reserve`. Every write passes here, so it is no generator."""

    def __init__(
        self,
        space: Space,
        admitted: Callable[[str, int, str], Awaitable[Room]],
        call: Call,
        wanted: tuple[str, int, str],
    ) -> None:
        self._space, self._admitted, self._call = space, admitted, call
        self._wanted = wanted

    async def __aenter__(self) -> Room:
        self._room = self._space.admit_at_once(*self._wanted) or await self._admitted(*self._wanted)
        return self._room

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        room = self._room
        if room.settled:
            return
        if kind is None and room.path:
            await self._call(self._space.settle, room)
        else:
            self._space.give_back(room)


def keep(context: Context) -> None:
    """Gives a context its index and its space. Raises CacheError."""
    keeping = Keeping(context)
    context.index = keeping
    context.space = keeping


def _disk_of(context: Context) -> Disk:
    from cache_server.backends.posix import PosixBackend

    backend = context.backend
    return DirectoryDisk(backend.root) if isinstance(backend, PosixBackend) else NoDisk()


def _excludes(context: Context) -> bool:
    try:
        probe(context.records)
    except NotExclusiveError:
        return False
    return True


def _measure(context: Context, index: Index, space: Space, election: Election) -> Callable[[str, int], None]:
    """Adds what is stored, promised and evicted to the metrics; returns what counts an eviction."""
    from prometheus_client import Counter, Gauge

    registry = context.metrics.registry

    def gauge(name: str, text: str, value: Callable[[], float]) -> None:
        Gauge(f"neuron_env_cache_{name}", text, registry=registry).set_function(value)

    gauge("store_bytes", "Bytes in the store, as far as the index knows", lambda: index.stock.bytes)
    gauge("store_blobs", "Blobs in the store", lambda: index.stock.blobs)
    gauge("store_entries", "Entries in the store", lambda: sum(it.entries for it in index.stock.namespaces.values()))
    gauge("reserved_bytes", "Bytes promised to writers", lambda: space.promised)
    gauge("collecting", "1 where this replica is the one that collects", lambda: float(election.elected))
    if space.limits.capacity is not None:
        capacity = space.limits.capacity
        gauge("capacity_bytes", "Bytes that the store may hold", lambda: capacity)
    entries = Counter("neuron_env_cache_evicted_entries", "Entries evicted", ["reason"], registry=registry)
    freed_bytes = Counter("neuron_env_cache_evicted_bytes", "Bytes freed by evictions", ["reason"], registry=registry)

    def count(reason: str, freed: int) -> None:
        entries.labels(reason).inc()
        freed_bytes.labels(reason).inc(freed)

    return count


def _failure(row: EntryRow) -> dict[str, Any]:
    return {
        "namespace": row.namespace,
        "key": row.key,
        "label": row.label,
        "kind": FailureKind.COMPILER_ERROR.value,  # the only kind that is remembered
        "text": row.text,
        "created_at": row.created_at,
        "expires_at": row.expires_at,
        "host": row.host,
    }


def _whole(value: float) -> float:
    return int(value) if value == int(value) else round(value, 3)
