"""The NEFF cache as programs use it: `NeffCache.open().get_or_compile(parts, compile)`."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from cache_server.base import Base, open_base
from cache_server.errors import BreakerOpenError, CacheError, NotExclusiveError, StoreError, TimedOutError
from cache_server.keys import KeyParts
from cache_server.leases.owner import Owner
from cache_server.local import LocalHit, LocalTier
from cache_server.manifest import NEFF_FILE, Manifest
from cache_server.outputs import Built, fetch_outputs
from cache_server.resilience.effort import effort_of
from cache_server.result import CacheResult, Outcome, Phase, Waiting
from cache_server.settings import CacheSettings
from cache_server.slots import CompileSlots
from cache_server.stats import CacheStats
from cache_server.storage import open_tier
from cache_server.tier import SharedStore, SharedTier

if TYPE_CHECKING:
    from cache_server.jobs.journal import JobJournal

log = logging.getLogger("neuron_env.cache")


class NeffCache:
    """Two tiers of NEFFs, and the promise that a graph is compiled once by all who share the outer one.

    The local tier is this host's own; the shared one is a store for the fleet. A request goes to the local tier, then
    waits for other processes of this host that want the same key, then asks the store, then takes the key's lease and
    compiles, or waits for whoever has it. Nobody waits longer than `settings.wait_seconds`, and no state of any tier
    fails a request: at worst it compiles, as if there were no cache. Safe to use from several threads.

    `progress` is called about once a second while a request waits, `on_phase` as an owner moves on. Both run in the
    thread that made the request.
    """

    def __init__(
        self,
        settings: CacheSettings,
        storage: SharedTier | None,
        *,
        owner: Owner | None = None,
        progress: Callable[[Waiting], None] | None = None,
        on_phase: Callable[[Phase], None] | None = None,
    ) -> None:
        self.settings = settings
        self.storage = storage
        self.slots = CompileSlots(
            settings.local_dir / "slots", settings.compile_slots, memory_each=settings.compile_memory
        )
        self.trust = storage.store.trust if storage else settings.trust()
        self.local = LocalTier(
            settings.local_dir,
            max_bytes=settings.local_max_bytes,
            verifier=self.trust.verifier if self.trust else None,
            namespace=settings.namespace,
        )
        self.base: Base | None = None
        if settings.overlay is not None:
            self.base = open_base(settings.overlay, settings.namespace, self.trust)
        self.owner = owner or Owner.here()
        self.progress = progress
        self.on_phase = on_phase
        self._stats = CacheStats()
        self._journal: JobJournal | None = None
        if settings.job is not None and storage is not None and not settings.read_only:
            from cache_server.jobs.journal import JobJournal
            from cache_server.jobs.shelf import shelf_of

            self._journal = JobJournal(shelf_of(storage), settings.job, self.owner, complain=self.complain)
        self._lock = threading.Lock()
        self._leases_work: bool | None = None
        self._warned: set[str] = set()

    @classmethod
    def open(
        cls,
        url: str | None = None,
        *,
        local_dir: str | os.PathLike[str] | None = None,
        settings: CacheSettings | None = None,
        progress: Callable[[Waiting], None] | None = None,
        on_phase: Callable[[Phase], None] | None = None,
    ) -> NeffCache:
        """The cache at `url` and `local_dir`, or where the environment says, or in the user's cache directory.

        `settings` replaces all of these. Touches no tier yet. Raises CacheError for a URL or setting that cannot be.
        """
        settings = settings or CacheSettings.from_environment(url=url, local_dir=local_dir)
        storage = None
        if settings.enabled and settings.url is not None:
            storage = open_tier(
                settings.url,
                namespace=settings.namespace,
                permissions=settings.permissions,
                read_only=settings.read_only,
                trust=settings.trust(),
            )
        return cls(settings, storage, progress=progress, on_phase=on_phase)

    @property
    def stats(self) -> CacheStats:
        """What this object did so far."""
        self._stats.quarantined = self.local.quarantined
        if self.storage is not None:
            self._stats.quarantined += self.storage.store.quarantined
            trouble = self.storage.trouble()
            self._stats.retries, self._stats.breaker_opened = trouble.retries, trouble.breaker_opened
        if self.trust is not None:
            self._stats.refused = self.trust.verifier.refused
        return self._stats

    def get_or_compile(
        self,
        parts: KeyParts,
        compile: Callable[[], bytes | Built],  # noqa: A002  the word its callers think in
        *,
        label: str = "",
    ) -> CacheResult:
        """The NEFF for `parts`: from a tier, from whoever compiles it now, or from `compile`.

        `label` is for people: what messages and manifests call the graph. A compile that returns `Built` has its other
        outputs kept with the NEFF, and a hit has them in `outputs`. Raises whatever `compile` raises, and
        CompileFailure when the graph is remembered to fail; nothing on account of the cache itself, except CacheError
        for a miss where `settings.require_hit` forbids to compile.
        """
        from cache_server.flight import Flight

        if not self.settings.enabled:
            return self._compile_disabled(parts, compile)
        if self._journal is not None:
            self._journal.record(parts.key, label)
        result = self.from_local(parts) or Flight(self, parts, compile, label).run()
        if self.settings.verify == "always" and result.outcome in (Outcome.LOCAL_HIT, Outcome.SHARED_HIT):
            self._compare(result, _built(compile()).neff)
        return result

    def get(self, parts: KeyParts) -> CacheResult | None:
        """The NEFF if a tier has it. Never compiles, waits or raises; a remembered failure is None too."""
        if not self.settings.enabled:
            return None
        if self._journal is not None:
            self._journal.record(parts.key)
        hit = self.from_local(parts) or self.from_base(parts)
        if hit is not None or self.storage is None:
            return hit
        try:
            with effort_of(self.settings.budget_seconds):
                manifest = self.storage.store.read_manifest(parts.key)
                if manifest is None or manifest.failure is not None:
                    return None
                return self.fetch(self.storage.store, manifest)
        except StoreError as error:
            self.complain(error)
            return None

    def peek(self, parts: KeyParts) -> Manifest | None:
        """What the shared tier knows of a key, failures included, without its NEFF. Raises StoreError."""
        return None if self.storage is None else self.storage.store.read_manifest(parts.key)

    def entries(self) -> Iterator[Manifest]:
        """Every entry of the shared tier's namespace, in no order. For administration. Raises StoreError."""
        return iter(()) if self.storage is None else self.storage.store.entries()

    def close_job(self) -> None:
        """Writes down what `settings.job` asked for, now. The end of the process does so, too, where it has one."""
        if self._journal is not None:
            self._journal.flush()

    def from_local(self, parts: KeyParts) -> CacheResult | None:
        """The NEFF if this host has it."""
        hit = self.local.get(parts)
        if hit is None:
            return None
        self._stats.add(local_hits=1, seconds_saved=hit.compile_seconds)
        return _hit(hit, parts, Outcome.LOCAL_HIT)

    def from_base(self, parts: KeyParts) -> CacheResult | None:
        """The NEFF if the overlay's base has it. One that has to be fetched is kept on this host from now on."""
        hit = None if self.base is None else self.base.get(parts)
        if hit is None or self.base is None:
            return None
        if self.base.is_far:
            self.local.put(parts, hit.neff, hit.compile_seconds, manifest=hit.manifest, outputs=hit.outputs)
        self._stats.add(shared_hits=1, seconds_saved=hit.compile_seconds)
        return _hit(hit, parts, Outcome.SHARED_HIT)

    def fetch(self, store: SharedStore, manifest: Manifest) -> CacheResult | None:
        """The verified NEFF of a manifest, kept on this host from now on; None if it is missing or damaged."""
        neff = store.read_blob(manifest.files[NEFF_FILE])
        outputs = None if neff is None else fetch_outputs(store, manifest)
        if neff is None or outputs is None:
            return None
        seconds = manifest.producer.compile_seconds
        self.local.put(manifest.parts, neff, seconds, manifest=manifest, outputs=outputs)
        self._stats.add(shared_hits=1, seconds_saved=seconds)
        return CacheResult(
            neff, manifest.key, Outcome.SHARED_HIT, saved_seconds=seconds, epoch=manifest.epoch, outputs=outputs
        )

    def leases_work(self) -> bool:
        """Whether the store excludes, found out once. Raises StoreError if it cannot be written at all."""
        with self._lock:
            if self._leases_work is None:
                self._leases_work = self._probe()
            return self._leases_work

    def give_up_leases(self, error: NotExclusiveError) -> bool:
        """Takes note that the store does not exclude after all; False, as `leases_work` is from now on."""
        with self._lock:
            if self._leases_work is not False:
                self._leases_work = self._without_leases(error)
        return False

    def complain(self, error: CacheError) -> None:
        """Counts a store that did not work, and warns at the first time each thing went wrong."""
        if isinstance(error, BreakerOpenError):
            self._stats.add(breaker_open=1)
        elif isinstance(error, TimedOutError):
            self._stats.add(timeouts=1)
        else:
            self._stats.add(errors=1)
        with self._lock:
            # An open breaker follows an error that was told.
            known = error.message in self._warned or isinstance(error, BreakerOpenError)
            level = logging.DEBUG if known else logging.WARNING
            self._warned.add(error.message)
        log.log(level, "working without the shared cache: %s", error)

    def _probe(self) -> bool:
        assert self.storage is not None
        try:
            self.storage.coordinator(self.settings.lease_seconds).prove()
        except NotExclusiveError as error:
            return self._without_leases(error)
        return True

    def _without_leases(self, error: NotExclusiveError) -> bool:
        log.warning("%s; %s", error, error.hint)
        return False

    def _compile_disabled(self, parts: KeyParts, compile_: Callable[[], bytes | Built]) -> CacheResult:
        built = _built(compile_())
        self._stats.add(compiles=1)
        return CacheResult(
            built.neff,
            parts.key,
            Outcome.COMPILED_UNCACHED,
            reason="the cache is switched off",
            outputs=built.outputs,
        )

    def _compare(self, result: CacheResult, fresh: bytes) -> None:
        self._stats.add(compiles=1)
        if fresh != result.neff:
            self._stats.add(nondeterministic=1)
            log.warning("compiling %s again gave other bytes than the cache has", result.key)


def _hit(hit: LocalHit, parts: KeyParts, outcome: Outcome) -> CacheResult:
    return CacheResult(hit.neff, parts.key, outcome, saved_seconds=hit.compile_seconds, outputs=hit.outputs)


def _built(made: bytes | Built) -> Built:
    return made if isinstance(made, Built) else Built(made)
