"""TorchNeuron's cache directory and a store: what one has and the other lacks."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cache_server.errors import StoreError
from cache_server.leases.owner import Owner
from cache_server.manifest import NEFF_FILE, Manifest
from cache_server.tier import SharedStore
from cache_server.transfer.crew import in_parallel
from cache_server.transfer.foreign import foreign_manifest, foreign_parts, short_key_of
from cache_server.transfer.publish import publish, put_whole
from cache_server.transfer.report import Fate, Item, Report
from neuron_runtime.compiler.output import write_output
from neuron_runtime.neff import NeffError, read_neff

_NAME = re.compile(r"(?P<k>[0-9a-f]{32})\.neff")
_SHARD = re.compile(r"[0-9a-f]{2}")
_SETTLED_SECONDS = 2.0
_BATCH = 1000  # keys of one look-up


@dataclass(frozen=True, slots=True)
class Kept:
    """A NEFF in the directory, as far as its name and status tell."""

    key: str
    path: Path
    size: int
    modified_at: float


@dataclass
class TorchDirectory:
    """`<k[0:2]>/<k[2:4]>/<k>.neff` below `root`. Folders that have not changed since are not looked into again."""

    root: Path
    _seen: dict[Path, tuple[int, dict[str, Kept]]] = field(default_factory=dict)

    def scan(self) -> dict[str, Kept]:
        """What is there by TorchNeuron's key. NEFFs that have a note of ours beside them are not its own, and left out.

        A directory that is not there is empty. Raises OSError for one that cannot be read.
        """
        found: dict[str, Kept] = {}
        for shard in _folders(self.root):
            for folder in _folders(shard):
                found |= self._look_into(folder)
        return found

    def path(self, key: str) -> Path:
        return self.root / key[:2] / key[2:4] / f"{key}.neff"

    def _look_into(self, folder: Path) -> dict[str, Kept]:
        changed = folder.stat().st_mtime_ns
        known = self._seen.get(folder)
        if known is not None and known[0] == changed:
            return known[1]
        files: dict[str, Kept] = {}
        names = {entry.name: entry for entry in os.scandir(folder)}
        for name, entry in names.items():
            match = _NAME.fullmatch(name)
            if match is None or match["k"][:4] != folder.parent.name + folder.name or f"{name}.sha256" in names:
                continue
            with contextlib.suppress(FileNotFoundError):
                info = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(info.st_mode):
                    files[match["k"]] = Kept(match["k"], Path(entry.path), info.st_size, info.st_mtime)
        # A time stands for a few milliseconds: what comes within the same ones must not be missed.
        if time.time() - changed / 1e9 > _SETTLED_SECONDS:
            self._seen[folder] = (changed, files)
        return files


class Sync:
    """One directory and one store, for hosts whose compiler and torch-neuronx are of one `release`.

    A NEFF that either side has is never replaced. What is cut off goes on where it stopped: each thing is moved whole.
    """

    def __init__(
        self,
        directory: TorchDirectory,
        store: SharedStore,
        release: str,
        *,
        owner: Owner,
        dry_run: bool = False,
        planned: Callable[[int], None] = lambda size: None,
        advanced: Callable[[int], None] = lambda size: None,
    ) -> None:
        """`planned` is told the bytes to go, `advanced` those that have gone, from any thread."""
        self._directory = directory
        self._store = store
        self._release = release
        self._owner = owner
        self._dry_run = dry_run
        self._planned = planned
        self._advanced = advanced
        self._settled: set[str] = set()  # keys of the directory that need no further look
        self._faulty: dict[str, tuple[int, float]] = {}  # and those that are no NEFFs, by size and time

    def fill(self) -> Report:
        """From the store into the directory. Raises StoreError and OSError."""
        here = self._directory.scan()
        lacking: list[tuple[str, Manifest]] = []
        items = []
        for manifest in self._store.entries():
            key = short_key_of(manifest.parts, self._release)
            if key is None or manifest.failure is not None:
                continue
            if key in here and here[key].size > 0:
                items.append(Item(key, Fate.PRESENT, key=manifest.key))
            elif self._store.accepts(manifest):
                lacking.append((key, manifest))
        self._planned(sum(_size(manifest) for _, manifest in lacking))
        return Report.of([*items, *in_parallel(self._fetch, lacking, size=lambda pair: _size(pair[1]))])

    def upload(self) -> Report:
        """From the directory into the store: what is new since the last call. Raises StoreError and OSError."""
        fresh = {key: kept for key, kept in self._directory.scan().items() if self._is_new(kept)}
        known: dict[str, Manifest] = {}
        keys = {foreign_parts(key, self._release).key: key for key in fresh}
        for batch in _batches(list(keys)):
            known |= self._store.read_manifests(batch)
        there = {keys[key] for key, manifest in known.items() if manifest.failure is None}
        self._settled |= there
        items = [Item(key, Fate.PRESENT, place=self._store.url) for key in sorted(there)]
        lacking = [kept for key, kept in fresh.items() if key not in there]
        self._planned(sum(kept.size for kept in lacking))
        return Report.of([*items, *in_parallel(self._put, lacking, size=lambda kept: kept.size)])

    def _is_new(self, kept: Kept) -> bool:
        return kept.key not in self._settled and self._faulty.get(kept.key) != (kept.size, kept.modified_at)

    def _fetch(self, pair: tuple[str, Manifest]) -> Item:
        key, manifest = pair
        path = self._directory.path(key)
        item = Item(key, Fate.MOVED, "", manifest.key, str(self._directory.root), _size(manifest))
        if self._dry_run:
            return item
        try:
            neff = self._store.read_blob(manifest.files[NEFF_FILE])
            if neff is None:
                return Item(key, Fate.FAILED, "its NEFF is missing or damaged in the store", manifest.key)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_output(path, neff)
        except (StoreError, OSError) as error:
            return Item(key, Fate.FAILED, str(error), manifest.key)
        self._settled.add(key)
        self._advanced(len(neff))
        return item

    def _put(self, kept: Kept) -> Item:
        try:
            neff = kept.path.read_bytes()
            read_neff(neff)
        except FileNotFoundError:
            return Item(kept.key, Fate.SKIPPED, "it has gone")
        except OSError as error:
            return Item(kept.key, Fate.FAILED, f"it cannot be read: {error.strerror}; see `neuron-env cache doctor`")
        except NeffError as error:
            self._faulty[kept.key] = (kept.size, kept.modified_at)
            return Item(kept.key, Fate.SKIPPED, f"it is not a whole NEFF: {error.problem}")
        manifest = foreign_manifest(kept.key, self._release, neff, kept.modified_at, self._owner)
        if self._dry_run:
            return Item(kept.key, Fate.MOVED, "", manifest.key, self._store.url, len(neff))
        try:
            item = publish(
                self._store, manifest, lambda blob: put_whole(self._store, blob, neff), known=None, name=kept.key
            )
        except StoreError as error:
            return Item(kept.key, Fate.FAILED, error.message, manifest.key)
        self._settled.add(kept.key)
        self._advanced(len(neff))
        return item


def _size(manifest: Manifest) -> int:
    return manifest.files[NEFF_FILE].size


def _folders(place: Path) -> list[Path]:
    try:
        return sorted(Path(entry) for entry in os.scandir(place) if entry.is_dir() and _SHARD.fullmatch(entry.name))
    except FileNotFoundError:
        return []


def _batches(keys: list[str]) -> Iterator[list[str]]:
    for at in range(0, len(keys), _BATCH):
        yield keys[at : at + _BATCH]
