"""Taking entries out: as a bundle, which is a store, or in the vendor's layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from cache_server.errors import StoreError
from cache_server.fields import encode_object
from cache_server.jobs.record import Job, JobRecord
from cache_server.local import files_of
from cache_server.manifest import NEFF_FILE, Blob, Manifest
from cache_server.store import LAYOUT, blob_path
from cache_server.tier import SharedStore
from cache_server.transfer import neuronxla
from cache_server.transfer.layouts import MANIFEST_NAME, Layout
from cache_server.transfer.report import Fate, Item, Report
from cache_server.transfer.sinks import Sink

BUNDLE_VERSION = 1


class Export:
    """Entries of a store into one sink. Every blob is verified on its way; what does not verify is left out."""

    def __init__(
        self, store: SharedStore, sink: Sink, place: str, *, advanced: Callable[[int], None] = lambda size: None
    ) -> None:
        """`place` is what reports call the sink; `advanced` is told the bytes that have gone."""
        self._store = store
        self._sink = sink
        self._place = place
        self._advanced = advanced

    def run(self, manifests: Iterable[Manifest], layout: Layout, jobs: Sequence[Job] = ()) -> Report:
        """Writes the entries, with the names of `jobs` in a bundle. Raises StoreError and CacheError."""
        chosen = sorted(manifests, key=lambda manifest: manifest.key)
        if layout is Layout.BUNDLE:
            return Report.of(self._bundle(chosen, jobs))
        writer = self._torch if layout is Layout.TORCH_NEURONX else self._neuronxla
        return Report.of(writer(chosen))

    def _bundle(self, manifests: Sequence[Manifest], jobs: Sequence[Job]) -> Iterator[Item]:
        """Blobs before manifests, so that whoever unpacks it into a store never shows an entry too early."""
        namespace = self._store.namespace
        self._sink.put(
            MANIFEST_NAME,
            encode_object(
                {
                    "format": "neuron-env-cache-bundle",
                    "version": BUNDLE_VERSION,
                    "layout": LAYOUT,
                    "namespace": namespace,
                }
            ),
        )
        bad: dict[str, str] = {}
        for blob in sorted({b for m in manifests for b in m.files.values()}, key=lambda blob: blob.sha256):
            data, why = self._read(blob)
            if data is None:
                bad[blob.sha256] = why
            else:
                self._sink.put(f"{LAYOUT}/{blob_path(blob.sha256)}", data)
        for manifest in manifests:
            missing = [bad[blob.sha256] for blob in manifest.files.values() if blob.sha256 in bad]
            if missing:
                yield self._item(manifest, Fate.FAILED, missing[0])
                continue
            path = f"{LAYOUT}/entries/{namespace}/{manifest.key[:2]}/{manifest.key}.json"
            self._sink.put(path, manifest.encode())
            yield self._item(manifest, Fate.MOVED)
        for job in jobs:
            self._sink.put(f"{LAYOUT}/jobs/{namespace}/{job.name}/bundle.json", _record_of(job).encode())

    def _torch(self, manifests: Sequence[Manifest]) -> Iterator[Item]:
        for manifest, contents in self._contents(manifests):
            if isinstance(contents, Item):
                yield contents
            elif manifest.failure is not None:
                yield self._item(manifest, Fate.SKIPPED, "this layout has no place for a failure")
            else:
                made = replace(manifest, files={NEFF_FILE: manifest.files[NEFF_FILE]}, signature=None)
                seconds = manifest.producer.compile_seconds
                for path, data in files_of(manifest.parts, contents[NEFF_FILE], seconds, made):
                    self._sink.put(path, data)
                yield self._item(manifest, Fate.MOVED)

    def _neuronxla(self, manifests: Sequence[Manifest]) -> Iterator[Item]:
        written: set[str] = set()
        for manifest, contents in self._contents(manifests):
            if isinstance(contents, Item):
                yield contents
                continue
            try:
                directory = neuronxla.export_path(manifest)
            except ValueError as error:
                yield self._item(manifest, Fate.SKIPPED, str(error))
                continue
            if directory in written:
                yield self._item(manifest, Fate.SKIPPED, f"another entry is {directory} as well")
                continue
            written.add(directory)
            for name, data in neuronxla.export_files(manifest, contents):
                self._sink.put(f"{directory}/{name}", data)
            yield self._item(manifest, Fate.MOVED)

    def _contents(self, manifests: Sequence[Manifest]) -> Iterator[tuple[Manifest, Mapping[str, bytes] | Item]]:
        for manifest in manifests:
            contents: dict[str, bytes] = {}
            failed: Item | None = None
            for name, blob in manifest.files.items():
                data, why = self._read(blob)
                if data is None:
                    failed = self._item(manifest, Fate.FAILED, why)
                    break
                contents[name] = data
            yield manifest, failed or contents

    def _read(self, blob: Blob) -> tuple[bytes | None, str]:
        try:
            data = self._store.read_blob(blob)
        except StoreError as error:
            return None, error.message
        self._advanced(blob.size)
        return data, "" if data is not None else f"its blob {blob.sha256[:16]} is missing or damaged"

    def _item(self, manifest: Manifest, fate: Fate, why: str = "") -> Item:
        size = sum(blob.size for blob in set(manifest.files.values()))
        return Item(manifest.label or manifest.key, fate, why, manifest.key, self._place, size)


def _record_of(job: Job) -> JobRecord:
    return JobRecord(job.name, "bundle", 0, "", job.started_at, job.updated_at, job.keys, job.dropped)
