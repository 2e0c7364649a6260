"""Making what no tier has: compile, publish, keep."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from cache_server.errors import LeaseLostError, StoreError
from cache_server.failures import remember
from cache_server.keys import KeyParts
from cache_server.leases import Heartbeat, HeldLease
from cache_server.manifest import NEFF_FILE, Blob, Failure, Manifest, Producer
from cache_server.outputs import Built, file_name
from cache_server.resilience.effort import effort_of
from cache_server.result import CacheResult, Outcome, Phase
from cache_server.slots import compile_slot
from cache_server.store import Put
from cache_server.tier import SharedStore
from neuron_runtime.compiler.errors import CompileFailure

if TYPE_CHECKING:
    from cache_server.cache import NeffCache

log = logging.getLogger("neuron_env.cache")

_LAST_SECONDS = 1.5  # for publishing to a store that failed lately
_RELEASE_SECONDS = 0.5


class Production:
    """One compile for one key, in one of the three ways that the state of the store allows.

    Every way returns the NEFF, whatever becomes of the store meanwhile, and raises only what the compile raises.
    """

    def __init__(self, cache: NeffCache, parts: KeyParts, compile_: Callable[[], bytes | Built], label: str) -> None:
        self._cache = cache
        self._parts = parts
        self._compile = compile_
        self._label = label
        self._started_at = 0.0
        self._seconds = 0.0

    def as_owner(self, store: SharedStore, lease: HeldLease) -> CacheResult:
        """Compiles under a lease, which is settled or free afterwards, an interrupt included."""
        self._cache.stats.add(misses=1)
        manifest: Manifest | None = None
        reason = "no result"
        try:
            with Heartbeat(lease):
                self._enter(Phase.ACQUIRED, lease)
                self._enter(Phase.COMPILING, lease)
                try:
                    built = self._compile_now(lease)
                except CompileFailure as failure:
                    reason = f"{failure.kind.value}: {failure.message}"
                    with self._last_effort():
                        self._publish_failure(store, lease, failure)
                    raise
                try:
                    with self._last_effort():
                        manifest = self._publish(store, lease, built)
                except LeaseLostError as error:
                    reason = error.message
                    self._cache.stats.add(fenced=1)
                    log.warning("%s: %s", self._label or self._parts.key[:12], error)
                except StoreError as error:
                    reason = error.message
                    self._cache.complain(error)
        finally:
            # Nobody should have to wait for the lease to expire. What was published stays, release sees to that.
            if manifest is None:
                self._release(lease, reason)
        if manifest is None:
            return self._kept(built, Outcome.COMPILED_UNCACHED, epoch=lease.epoch, reason=reason)
        if not lease.lists:
            self._list(store, manifest)
        self._enter(Phase.LISTED)
        return self._kept(built, Outcome.COMPILED, epoch=lease.epoch, manifest=manifest)

    def without_lease(self, store: SharedStore, epoch: int) -> CacheResult:
        """For a store that does not exclude: others may compile the same graph, and the first result stays."""
        self._cache.stats.add(misses=1)
        built = self._compile_now()
        try:
            with self._last_effort():
                manifest = store.signed(self._manifest(epoch, files=_stored(store, built)))
                if store.put_manifest(manifest) is Put.OTHER:
                    self._cache.stats.add(nondeterministic=1)
        except StoreError as error:
            self._cache.complain(error)
            return self._kept(built, Outcome.COMPILED_UNCACHED, reason=error.message)
        return self._kept(built, Outcome.COMPILED, epoch=epoch, manifest=manifest)

    def for_this_host(self, reason: str = "") -> CacheResult:
        """Compiles and keeps the NEFF in the local tier; `reason`: why the shared one was passed over, if it was."""
        outcome = Outcome.COMPILED_UNCACHED if reason else Outcome.COMPILED
        return self._kept(self._compile_now(), outcome, reason=reason)

    def _compile_now(self, lease: HeldLease | None = None) -> Built:
        with compile_slot(self._cache, self._parts, self._label, lease):
            self._cache.stats.add(compiles=1)
            self._started_at = time.time()
            begun = time.monotonic()
            try:
                made = self._compile()
                return made if isinstance(made, Built) else Built(made)
            finally:
                self._seconds = time.monotonic() - begun
                self._cache.stats.add(seconds_compiling=self._seconds)

    def _publish(self, store: SharedStore, lease: HeldLease, built: Built) -> Manifest:
        self._enter(Phase.STORING, lease)
        files = _stored(store, built)
        self._enter(Phase.PUBLISHING, lease)
        manifest = store.signed(self._manifest(lease.epoch, files=files))
        lease.publish(manifest)
        self._enter(Phase.PUBLISHED, lease)
        return manifest

    def _publish_failure(self, store: SharedStore, lease: HeldLease, error: CompileFailure) -> None:
        """Leaves a compiler error for others to find. Any other failure is not theirs."""
        ttl = self._cache.settings.failure_ttl_seconds
        failure = remember(error, now=time.time(), ttl_seconds=ttl)
        if failure is None:
            return
        manifest = store.signed(self._manifest(lease.epoch, failure=failure))
        try:
            lease.publish(manifest)
            if not lease.lists:
                store.put_manifest(manifest)
        except LeaseLostError:
            self._cache.stats.add(fenced=1)
        except StoreError as problem:
            self._cache.complain(problem)

    def _list(self, store: SharedStore, manifest: Manifest) -> None:
        """Puts a published manifest where readers look first. The lease record has it too, so this may fail."""
        try:
            store.put_manifest(manifest)
        except StoreError as error:
            self._cache.complain(error)

    def _manifest(
        self, epoch: int, *, files: dict[str, Blob] | None = None, failure: Failure | None = None
    ) -> Manifest:
        owner = self._cache.owner
        return Manifest(
            parts=self._parts,
            files=files or {},
            epoch=epoch,
            producer=Producer(
                host=owner.host,
                pid=owner.pid,
                user=owner.user,
                compiler=f"{self._parts.compiler} {self._parts.compiler_version}"[:500],
                started_at=self._started_at,
                compile_seconds=self._seconds,
            ),
            created_at=time.time(),
            label=self._label[:200],
            failure=failure,
        )

    def _kept(
        self, built: Built, outcome: Outcome, *, epoch: int = 0, reason: str = "", manifest: Manifest | None = None
    ) -> CacheResult:
        """Keeps the NEFF on this host, with a manifest for `cache push` if it was not published."""
        made = manifest or self._manifest(0, files={name: _blob(data) for name, data in _contents(built)})
        self._cache.local.put(self._parts, built.neff, self._seconds, made=made, outputs=built.outputs)
        self._enter(Phase.KEPT)
        return CacheResult(
            built.neff,
            self._parts.key,
            outcome,
            compile_seconds=self._seconds,
            epoch=epoch,
            reason=reason,
            outputs=built.outputs,
        )

    def _last_effort(self) -> AbstractContextManager[object]:
        """For what a finished compile leaves behind: worth insisting on, and still bounded in time."""
        tier = self._cache.storage
        away = tier is not None and tier.trouble().breaker_is_open
        return effort_of(_LAST_SECONDS if away else self._cache.settings.budget_seconds, insist=True)

    def _release(self, lease: HeldLease, note: str) -> None:
        try:
            with effort_of(_RELEASE_SECONDS, insist=True):
                lease.release(note)
        except (LeaseLostError, StoreError) as error:
            log.debug("the lease of %s was not released: %s", self._parts.key[:12], error)

    def _enter(self, phase: Phase, lease: HeldLease | None = None) -> None:
        if lease is not None:
            lease.phase = phase.value
        if self._cache.on_phase is not None:
            self._cache.on_phase(phase)


def _contents(built: Built) -> Iterator[tuple[str, bytes]]:
    yield NEFF_FILE, built.neff
    for name, data in built.outputs.items():
        yield file_name(name), data


def _stored(store: SharedStore, built: Built) -> dict[str, Blob]:
    return {name: store.put_blob(data) for name, data in _contents(built)}


def _blob(data: bytes) -> Blob:
    return Blob(hashlib.sha256(data).hexdigest(), len(data))
