"""Bringing entries in: each by its layout, and a word on everything that stays out."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from cache_server.errors import CacheError, StoreError
from cache_server.fields import parse_object
from cache_server.jobs.record import RECORD_LIMIT, decode_record
from cache_server.jobs.shelf import shelf_of
from cache_server.keys import KeyParts
from cache_server.leases.owner import Owner
from cache_server.manifest import MANIFEST_LIMIT, NEFF_FILE, Blob, Manifest, Producer, decode_manifest
from cache_server.tier import SharedTier
from cache_server.transfer import neuronxla, torchneuron
from cache_server.transfer.crew import in_parallel
from cache_server.transfer.exporting import BUNDLE_VERSION
from cache_server.transfer.layouts import Found, Layout, sort_members
from cache_server.transfer.neuronxla import Module
from cache_server.transfer.publish import publish, put_whole
from cache_server.transfer.report import Fate, Item, Report
from cache_server.transfer.source import Member, Source
from cache_server.transfer.tree import Tree

_NAMED = 3  # of the files that are passed over, so many are named


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An entry that can be published, and where in the source its blobs are."""

    name: str
    manifest: Manifest
    blobs: dict[str, Member]  # by SHA-256
    sign: bool = True  # whoever imports a tree without signatures vouches for it; a bundle has its own, or none

    @property
    def size(self) -> int:
        return sum(blob.size for blob in set(self.manifest.files.values()))


class Import:
    """One source into one namespace of a store, and what has no key of ours into a tree of the vendor's layout."""

    def __init__(
        self,
        source: Source,
        tier: SharedTier,
        tree: Tree,
        *,
        owner: Owner,
        dry_run: bool = False,
        planned: Callable[[int], None] = lambda size: None,
        advanced: Callable[[int], None] = lambda size: None,
    ) -> None:
        """`planned` is told the bytes to come, `advanced` those that have come, from any thread."""
        self._source = source
        self._tier = tier
        self._store = tier.store
        self._tree = tree
        self._owner = owner
        self._dry_run = dry_run
        self._planned = planned
        self._advanced = advanced

    def run(self, only: Layout | None = None) -> Report:
        """Imports what is there, or what is there in one layout.

        Raises CacheError where there is nothing of the kind, or a later version's bundle, and StoreError.
        """
        found = sort_members(self._source.members)
        chosen = [layout for layout in found.layouts if only in (None, layout)]
        if not chosen:
            what = f"no {only.value} cache" if only else "no cache that can be imported"
            refused = "".join(f"; {it.name} was refused: {it.refused}" for it in found.refused[:1])
            raise CacheError(
                f"there is {what} in {self._source.name}{refused}",
                hint="give a bundle of `neuron-env cache export`, a store, TorchNeuron's cache directory, or that of "
                "libneuronxla with its neuronxcc-<version> folders",
            )
        return Report.of(self._all(found, chosen))

    def _all(self, found: Found, chosen: list[Layout]) -> Iterator[Item]:
        yield from (Item(member.name, Fate.SKIPPED, member.refused) for member in found.refused)
        if found.other:
            names = ", ".join(member.name for member in found.other[:_NAMED])
            more = ", …" if len(found.other) > _NAMED else ""
            yield Item(f"{len(found.other)} files", Fate.SKIPPED, f"no part of a cache: {names}{more}")
        candidates: list[_Candidate] = []
        takers = {
            Layout.BUNDLE: self._from_bundle,
            Layout.TORCH_NEURONX: self._from_torch,
            Layout.NEURONXLA: self._from_neuronxla,
        }
        for layout in chosen:
            for it in takers[layout](found):
                if isinstance(it, Item):
                    yield it
                else:
                    candidates.append(it)
        yield from self._publish_all(candidates)
        if Layout.BUNDLE in chosen:
            self._take_jobs(found)

    def _publish_all(self, candidates: list[_Candidate]) -> Iterator[Item]:
        known = self._store.read_manifests(it.manifest.key for it in candidates)
        self._planned(sum(it.size for it in candidates))

        def one(candidate: _Candidate) -> Item:
            manifest, there = candidate.manifest, known.get(candidate.manifest.key)
            if self._dry_run and there is None:
                return Item(candidate.name, Fate.MOVED, "", manifest.key, self._store.url, candidate.size)

            def put(blob: Blob) -> str:
                member = candidate.blobs.get(blob.sha256)
                whole = member is not None and member.size == blob.size
                return put_whole(self._store, blob, self._source.read(member) if member and whole else None)

            try:
                item = publish(self._store, manifest, put, known=there, name=candidate.name, sign=candidate.sign)
            except StoreError:
                raise
            except CacheError as error:
                item = Item(candidate.name, Fate.FAILED, error.message, manifest.key)
            self._advanced(candidate.size)
            return item

        yield from in_parallel(one, candidates, size=lambda it: it.size)

    def _from_bundle(self, found: Found) -> Iterator[Item | _Candidate]:
        if found.bundle is not None:
            self._check_version(found.bundle)
        namespaces = {namespace for namespace, _ in found.entries}
        ours = self._store.namespace
        taken = namespaces if len(namespaces) == 1 else namespaces & {ours}
        for namespace in sorted(namespaces - taken):
            count = sum(of == namespace for of, _ in found.entries)
            yield Item(
                f"namespace {namespace}", Fate.SKIPPED, f"{count} entries of another namespace; see `--namespace`"
            )
        for (namespace, key), member in sorted(found.entries.items()):
            if namespace not in taken:
                continue
            try:
                if member.size > MANIFEST_LIMIT:
                    raise ValueError(f"longer than {MANIFEST_LIMIT} bytes")
                manifest = decode_manifest(self._source.read(member), key=key)
            except (ValueError, CacheError) as error:
                yield Item(member.name, Fate.FAILED, f"not a manifest: {error}", key)
                continue
            trust = self._store.trust
            if trust is not None and not trust.accepts(manifest, namespace, self._source.name):
                # Before a service puts its own name under it.
                yield Item(manifest.label or key, Fate.SKIPPED, "its signature will not do", key)
                continue
            if namespace != ours:
                # A signature is for one namespace.
                manifest = replace(manifest, signature=None)
            yield _Candidate(manifest.label or key, manifest, found.blobs, sign=False)

    def _from_torch(self, found: Found) -> Iterator[Item | _Candidate]:
        for short_key, files in sorted(found.neffs.items()):
            manifest = torchneuron.description(self._source, short_key, files)
            if manifest is None:
                yield torchneuron.adopt(self._source, short_key, files, self._tree, dry_run=self._dry_run)
                continue
            blob = manifest.files[NEFF_FILE]
            fresh = replace(manifest, epoch=0, signature=None, files={NEFF_FILE: blob})
            yield _Candidate(manifest.label or manifest.key, fresh, {blob.sha256: files[""]})

    def _from_neuronxla(self, found: Found) -> Iterator[Item | _Candidate]:
        now = time.time()
        for (version, name), files in sorted(found.modules.items()):
            module = Module(version, name, files)
            why = neuronxla.why_not(self._source, module, now)
            if why is not None:
                yield Item(module.path, Fate.SKIPPED, why)
                continue
            parts = neuronxla.parts_of(self._source, module)
            if isinstance(parts, str):
                yield neuronxla.adopt(self._source, module, self._tree, parts, dry_run=self._dry_run)
            elif (wrong := torchneuron.fault(self._source, files[neuronxla.NEFF])) is not None:
                yield Item(module.path, Fate.SKIPPED, wrong, parts.key)
            else:
                yield self._candidate(module, parts, now)

    def _candidate(self, module: Module, parts: KeyParts, now: float) -> _Candidate:
        files, blobs = {}, {}
        for name in (neuronxla.NEFF, neuronxla.HLO, neuronxla.FLAGS):
            member = module.files[name]
            stored = NEFF_FILE if name == neuronxla.NEFF else name
            blob = Blob(hashlib.sha256(self._source.read(member)).hexdigest(), member.size)
            files[stored], blobs[blob.sha256] = blob, member
        producer = Producer(
            host=f"unknown, imported on {self._owner.host}",
            pid=self._owner.pid,
            user=self._owner.user,
            compiler=f"{parts.compiler} {parts.compiler_version}",
            started_at=0.0,
            compile_seconds=0.0,
        )
        manifest = Manifest(parts, files, 0, producer, created_at=now, label=module.name)
        return _Candidate(module.path, manifest, blobs)

    def _check_version(self, member: Member) -> None:
        try:
            fields = parse_object(self._source.read(member), limit=MANIFEST_LIMIT)
            version = fields.integer("version", low=1, high=10**6)
        except ValueError as error:
            raise CacheError(f"{member.name} in {self._source.name} is not a bundle's: {error}") from error
        if version > BUNDLE_VERSION:
            raise CacheError(
                f"{self._source.name} is a bundle of version {version}, and this program knows {BUNDLE_VERSION}",
                hint="install a newer neuron-env",
            )

    def _take_jobs(self, found: Found) -> None:
        """The names of jobs come along, so that `prefetch --job` works where the bundle went."""
        if self._dry_run:
            return
        shelf = shelf_of(self._tier)
        for (_, job, part), member in found.jobs.items():
            if member.size > RECORD_LIMIT:
                continue
            data = self._source.read(member)
            try:
                if decode_record(data).job == job:
                    shelf.put(job, part, data)
            except ValueError:
                continue
