"""Looking after a store that this process reaches itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cache_server.administration import fsck, pins
from cache_server.administration.base import Listing, Progress
from cache_server.administration.collection import Policy, plan_collection
from cache_server.administration.fsck import Finding
from cache_server.administration.listing import Filter, beginning_of_key, resolve, select
from cache_server.administration.locks import Hold, free, held_leases, watch
from cache_server.administration.removal import Plan, Removed, Step, blind_note, carry_out, plan_entries
from cache_server.administration.snapshot import Entry, listed_entries, look_at, take_snapshot
from cache_server.administration.status import StoreStatus, store_status
from cache_server.errors import CacheError
from cache_server.leases.owner import Owner
from cache_server.manifest import UnknownSchemaError
from cache_server.names import is_digest
from cache_server.storage import Storage


@dataclass(frozen=True, slots=True)
class LocalProposal:
    """A plan, and the store that it is for. `removed` hears of each step that was done."""

    storage: Storage
    plan: Plan
    removed: Callable[[Step], None] = lambda step: None

    @property
    def things(self) -> Sequence[Step]:
        return self.plan.steps

    @property
    def notes(self) -> Sequence[str]:
        return self.plan.notes

    def carry_out(self, progress: Progress) -> Removed:
        done, total = 0, len(self.plan.steps)

        def one_more(step: Step) -> None:
            nonlocal done
            done += 1
            progress(done, total)

        return carry_out(self.storage, self.plan, step_done=one_more, step_removed=self.removed)


class LocalAdministration:
    """An `Administration` of a directory or a bucket. `removed` hears of each thing that is taken from it."""

    def __init__(
        self, storage: Storage, *, by: Owner | None = None, removed: Callable[[Step], None] = lambda step: None
    ) -> None:
        self._storage = storage
        self._store = storage.store
        self._by = by or Owner.here()
        self._removed = removed

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def namespace(self) -> str:
        return self._store.namespace

    def status(self, *, details: bool) -> StoreStatus:
        return store_status(self._storage, now=time.time(), details=details)

    def ls(self, wanted: Filter, *, sort: str, limit: int | None) -> Listing:
        entries, obscure = listed_entries(self._storage)
        chosen = select(entries, wanted, now=time.time(), sort=sort, limit=limit)
        return Listing(tuple(entry.summary for entry in chosen), len(entries), len(obscure))

    def entry(self, text: str) -> Entry:
        key = self._key(text)
        try:
            entry = look_at(self._storage, key)
        except UnknownSchemaError:
            raise CacheError(
                f"a later version of this program wrote the entry {key[:16]}", hint="install a newer neuron-env"
            ) from None
        if entry is None:
            raise no_entry(key)
        return replace(entry, pinned=pins.is_pinned(self._store, key))

    def holds(self) -> list[Hold]:
        return held_leases(self._storage)

    def watch(self, holds: Sequence[Hold]) -> list[Hold]:
        return watch(self._storage.records, holds)

    def free(self, hold: Hold) -> bool:
        return free(self._storage, hold, self._by)

    def pin(self, text: str) -> tuple[str, bool]:
        key = self.entry(text).key
        return key, pins.pin(self._store, key, self._by)

    def unpin(self, text: str) -> tuple[str, bool]:
        key = resolve(text, pins.pinned_keys(self._store.backend, self.namespace), what="pin")
        return key, pins.unpin(self._store, key)

    def removal(self, texts: Sequence[str]) -> LocalProposal:
        snapshot = take_snapshot(self._storage)
        entries = {entry.key: entry for entry in snapshot.within(self.namespace)}
        chosen = [entries[key] for key in dict.fromkeys(resolve(text, entries) for text in texts)]
        refuse_pinned([entry.key for entry in chosen if entry.pinned])
        steps = plan_entries(snapshot, [(entry, "asked for") for entry in chosen])
        return LocalProposal(self._storage, Plan(tuple(steps), tuple(blind_note(snapshot))), self._removed)

    def collection(self, policy: Policy) -> LocalProposal:
        return LocalProposal(self._storage, plan_collection(self._storage, policy, now=time.time()), self._removed)

    def check(self, *, repair: bool, contents: bool, grace: float, progress: Progress) -> list[Finding]:
        problems = fsck.check(self._storage, now=time.time(), grace=grace, contents=contents, progress=progress)
        return [
            Finding(it.fault, it.name, it.detail, repair and fsck.repair(self._storage, it, self._by))
            for it in problems
        ]

    def _key(self, text: str) -> str:
        """The one key of an entry that begins with `text`."""
        wanted = beginning_of_key(text)
        if is_digest(wanted):
            return wanted
        paths = self._store.backend.walk(f"entries/{self.namespace}/{wanted[:2]}")
        names = (path.rpartition("/")[2].removesuffix(".json") for path in paths)
        return resolve(wanted, filter(is_digest, names))


def no_entry(text: str) -> CacheError:
    return CacheError(f"there is no entry whose key begins with {text}", hint="type `neuron-env cache ls`")


def refuse_pinned(keys: Sequence[str]) -> None:
    """Raises CacheError if there are any: these keys were to be removed, and are pinned."""
    if keys:
        shown = [key[:16] for key in keys]
        raise CacheError(
            f"pinned, so not removed: {', '.join(shown)}", hint=f"type `neuron-env cache unpin {' '.join(shown)}`"
        )
