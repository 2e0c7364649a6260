"""What the routes of one service share."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from cache_server.backends import Backend
from cache_server.errors import NotExclusiveError, StoreError
from cache_server.leases.probe import probe
from cache_server.leases.records import RecordStore
from cache_server.manifest import Manifest
from cache_server.service.admission import OpenSpace, Space
from cache_server.service.background import logged
from cache_server.service.catalogue import Catalogue
from cache_server.service.express import Express
from cache_server.service.gate import AnonymousGate, Gate, Scope
from cache_server.service.hot import HotBlobs
from cache_server.service.metrics import Metrics
from cache_server.service.pace import Pace
from cache_server.service.settings import ServiceSettings
from cache_server.service.snapshots import Snapshots
from cache_server.service.tally import TallyCatalogue
from cache_server.service.tracing import Tracing
from cache_server.service.uploads import Uploads
from cache_server.service.watch import Watches
from cache_server.storage import Storage, open_storage
from cache_server.store import Store
from cache_server.trust.audit import AuditLog
from cache_server.trust.signatures import Trust

P = ParamSpec("P")
R = TypeVar("R")

_STORES = 1000  # namespaces whose Store is kept; a Store is cheap


class Context:
    """The store, the collaborators and the state of one process. Belongs to one event loop.

    `index`, `space`, `gate`, `trust` and `audit` may be replaced before `start`.
    """

    def __init__(self, settings: ServiceSettings, storage: Storage | None = None) -> None:
        storage = storage or open_storage(settings.store, permissions=settings.permissions)
        self.settings = settings
        self.backend: Backend = storage.store.backend
        self.records: RecordStore = storage.records
        self.replica = f"{os.uname().nodename}-{os.getpid()}-{secrets.token_hex(3)}"
        self.started_at = time.time()
        self.index: Catalogue = TallyCatalogue(self.backend)
        self.space: Space = OpenSpace()
        self.gate: Gate = AnonymousGate(Scope[settings.anonymous_scope.upper()])
        self.trust: Trust | None = None
        self.audit = AuditLog()
        self.tracing: Tracing | None = None
        self.metrics = Metrics()
        self.snapshots = Snapshots()
        self.draining = asyncio.Event()
        self.upkeep = asyncio.Lock()  # held while this replica collects or checks for an administrator
        self.watches = Watches(self.records, self.call, poll_seconds=settings.poll_seconds)
        self.hot = HotBlobs(settings.memory)
        self.pace = Pace(settings.rate_limit, settings.upload_limit, self.metrics.registry)
        self.express = Express(self.hot, self.draining, self.pace.allows)
        self.uploads = Uploads(self.call, self.store, lambda: self.space)
        self.metrics.watch(lambda: self.watches.waiters, lambda: sum(1 for _ in self.watches.held()))
        self._pool = ThreadPoolExecutor(settings.threads, thread_name_prefix="neuron-env-store")
        self._stores: dict[str, Store] = {}
        self._leases: asyncio.Task[bool] | None = None
        self._asking: asyncio.Task[bool] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begins what runs in the background. Returns at once: nothing waits for the store."""
        self.index.start()
        self.uploads.start()

    async def close(self) -> None:
        """Ends what runs in the background."""
        await self.watches.close()
        await self.uploads.close()
        for task in [*self._tasks, self._leases, self._asking]:
            if task is not None:
                task.cancel()
        self.index.close()
        if self.tracing is not None:
            await asyncio.to_thread(self.tracing.close)
        self.audit.close()
        self._pool.shutdown(wait=True, cancel_futures=True)

    async def call(self, act: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs what may block in a thread of the store's bounded pool."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: act(*args, **kwargs))

    def spawn(self, name: str, work: Callable[[], object]) -> None:
        """Runs `work` in the pool, after the answer; its errors end in the log."""
        self.follow(name, self.call(work))

    def follow(self, name: str, work: Coroutine[Any, Any, object]) -> None:
        """Lets `work` go on after the answer; its errors end in the log."""
        task = asyncio.get_running_loop().create_task(logged(name, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def store(self, namespace: str) -> Store:
        """The blobs and manifests of a namespace. Raises CacheError for what is none."""
        store = self._stores.get(namespace)
        if store is None:
            store = Store(self.backend, namespace, self.trust)
            if len(self._stores) < _STORES:
                self._stores[namespace] = store
        return store

    def hit(self, namespace: str, manifest: Manifest) -> None:
        """Counts the use of an entry."""
        self.metrics.hit(manifest)
        self.index.used(namespace, manifest)

    def miss(self, namespace: str, key: str) -> None:
        """Counts a key that nobody has."""
        self.metrics.miss()
        self.index.missed(namespace, key)

    async def leases_work(self) -> bool:
        """Whether the store excludes, found out at the first call. Raises StoreError if it cannot be written."""
        if self._leases is None or (self._leases.done() and not self._leases.cancelled() and self._leases.exception()):
            self._leases = asyncio.get_running_loop().create_task(self._probe())
        return await asyncio.shield(self._leases)

    @property
    def leases_known(self) -> bool | None:
        """What `leases_work` found; None while it has not."""
        task = self._leases
        return None if task is None or not task.done() or task.cancelled() or task.exception() else task.result()

    async def reachable(self, within: float | None = None) -> bool:
        """Whether the store answers a small question, in `within` seconds if given. One question at a time is asked."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._ask())
        try:
            return await asyncio.wait_for(asyncio.shield(self._asking), within)
        except TimeoutError:
            return False

    async def _ask(self) -> bool:
        try:
            await self.call(self.backend.read, "reachable", 0)
        except StoreError:
            return False
        return True

    async def _probe(self) -> bool:
        try:
            await self.call(probe, self.records)
        except NotExclusiveError:
            return False
        return True
