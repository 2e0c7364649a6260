"""The shared store: immutable blobs by digest, and one manifest a key."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import os
import time
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING

from cache_server.backends import Backend, Content, Found
from cache_server.blobs import BlobUpload, check, digest_of
from cache_server.errors import StoreError
from cache_server.manifest import MANIFEST_LIMIT, Blob, Manifest, UnknownSchemaError, decode_manifest
from cache_server.names import check_digest, check_namespace, is_digest

if TYPE_CHECKING:
    from cache_server.trust.signatures import Trust

LAYOUT = "neuron-env-cache.v1"  # the directory below a store's URL; another layout gets another name

_READERS = 8
_TOGETHER = 1000  # manifests in hand at once where all of them are read

log = logging.getLogger("neuron_env.cache")


class Put(StrEnum):
    """What became of a manifest that was to be published."""

    CREATED = "created"
    SAME = "same"  # the same content was there
    OTHER = "other"  # another result of the same or a later epoch was there, and stays


class Store:
    """Blobs and manifests of one namespace in a backend whose root is the layout directory.

    What does not verify is moved to `quarantine/` and counts as absent, in `quarantined` too. So does a manifest whose
    signature `trust` objects to; it stays where it is, for others may trust it. Methods raise StoreError when the
    place cannot be read or written. No method but `entries` lists.
    """

    def __init__(self, backend: Backend, namespace: str = "default", trust: Trust | None = None) -> None:
        self.backend = backend
        self.namespace = check_namespace(namespace)
        self.quarantined = 0
        self.trust = trust

    @property
    def url(self) -> str:
        return self.backend.url

    def record_name(self, key: str) -> str:
        """The name of the lease record of `key`."""
        return f"{self.namespace}/{check_digest(key)[:2]}/{key}"

    def put_blob(self, data: bytes | memoryview, expected: Blob | None = None) -> Blob:
        """Stores `data`, over a damaged copy if there is one. Raises DigestError if it is not what is `expected`."""
        blob = Blob(hashlib.sha256(data).hexdigest(), len(data))
        if expected is not None:
            check(expected, blob.size, blob.sha256)
        self.backend.write(blob_path(blob.sha256), data)
        return blob

    def find_blob(self, sha256: str) -> Found | None:
        """What is known of a blob without reading it; None if it is missing."""
        return self.backend.find(blob_path(sha256))

    def open_blob(self, sha256: str) -> Content | None:
        """A blob to be read piece by piece, not verified; None if it is missing. Close it."""
        return self.backend.open(blob_path(sha256))

    def verify_blob(self, blob: Blob) -> bool:
        """Reads a blob of any size and verifies it; a damaged one is moved away. False if it is missing or damaged."""
        content = self.open_blob(blob.sha256)
        if content is None:
            return False
        with contextlib.closing(content):
            why = ""
            if content.size != blob.size:
                why = f"is not {blob.size} bytes long"
            elif digest_of(content) != blob.sha256:
                why = "does not have the SHA-256 that names it"
        if why:
            self.set_aside(blob.sha256, why)
        return not why

    def set_aside(self, sha256: str, why: str) -> None:
        """Moves a blob that somebody found damaged to `quarantine/`."""
        self._quarantine(blob_path(sha256), why)

    def touch_blob(self, sha256: str) -> bool:
        """Makes a blob as new as one just stored, so that no collector takes it for unused; False if that cannot be."""
        return self.backend.touch(blob_path(sha256))

    def receive_blob(self, blob: Blob, *, name: str = "") -> BlobUpload:
        """Begins a blob that comes piece by piece. `name` is what `resume_blob` finds it by."""
        return BlobUpload(blob, self.backend.receive(blob_path(blob.sha256), blob.size, name=name))

    def begin_blob(self, blob: Blob) -> BlobUpload | None:
        """Begins a blob that comes piece by piece; None if it is there, as new as if it had just been stored."""
        return None if self.renew_blob(blob) else self.receive_blob(blob)

    def renew_blob(self, blob: Blob) -> bool:
        """Whether the blob is there; it then is as new as one just stored, so that no collector removes it."""
        found = self.find_blob(blob.sha256)
        return found is not None and found.size == blob.size and self.touch_blob(blob.sha256)

    def resume_blob(self, blob: Blob, *, name: str) -> BlobUpload | None:
        """Takes up an upload that was let go of, or whose process died; reads what had arrived.

        None if there is none by that name, if somebody has it in hand, or if the store cannot keep any.
        """
        found = self.backend.resume(blob_path(blob.sha256), blob.size, name=name)
        if found is None:
            return None
        incoming, arrived = found
        try:
            return BlobUpload(blob, incoming, arrived)
        except StoreError:
            incoming.suspend()
            raise

    def read_blob(self, blob: Blob) -> bytes | None:
        """The content, its length and SHA-256 verified; None if it is missing or damaged."""
        path = blob_path(blob.sha256)
        data = self.backend.read(path, blob.size)
        if data is None:
            return None
        if len(data) != blob.size:
            self._quarantine(path, f"is not {blob.size} bytes long")
            return None
        if hashlib.sha256(data).hexdigest() != blob.sha256:
            self._quarantine(path, "does not have the SHA-256 that names it")
            return None
        return data

    def read_manifest(self, key: str) -> Manifest | None:
        """The manifest of `key`; None if there is none that this version can use and this reader believes."""
        path = self.entry_path(key)
        data = self.backend.read(path, MANIFEST_LIMIT)
        manifest = None if data is None else self._decoded(path, data, key)
        return manifest if manifest is not None and self.accepts(manifest) else None

    def accepts(self, manifest: Manifest) -> bool:
        """Whether this reader may use a manifest of this namespace, wherever it was found: by its signature alone.

        `read_manifest` has asked already; for those that came in a lease record, a bundle or an answer.
        """
        return self.trust is None or self.trust.accepts(manifest, self.namespace, self.url)

    def list_again(self, manifest: Manifest) -> None:
        """Puts a manifest that its owner published in its lease record, and no more, where readers look first."""
        self.put_manifest(manifest)

    def signed(self, manifest: Manifest) -> Manifest:
        """The manifest with this process's signature, if it signs; as it is where it has one that is trusted."""
        return manifest if self.trust is None else self.trust.signed(manifest, self.namespace)

    def read_manifests(self, keys: Iterable[str]) -> dict[str, Manifest]:
        """The manifests of many keys; those that `read_manifest` would not give are left out."""
        from concurrent.futures import ThreadPoolExecutor

        wanted = list(dict.fromkeys(keys))
        with ThreadPoolExecutor(_READERS, thread_name_prefix="neuron-env-manifests") as pool:
            found = zip(wanted, pool.map(self.read_manifest, wanted), strict=True)
            return {key: manifest for key, manifest in found if manifest is not None}

    def put_manifest(self, manifest: Manifest) -> Put:
        """Publishes a manifest unless one of the same or a later epoch is there. An earlier one gives way.

        So does one of any epoch that no trusted key vouches for, to one for which a trusted key does. Signs nothing:
        what this process merely found somewhere would then be taken for what it made.
        """
        path, data = self.entry_path(manifest.key), manifest.encode()
        for _ in range(10):
            if self.backend.create(path, data):
                return Put.CREATED
            found = self.backend.read(path, MANIFEST_LIMIT)
            if found is None:
                continue
            existing = self._decoded(path, found, manifest.key)
            if existing is None:
                if self.backend.read(path, MANIFEST_LIMIT) == found:
                    return Put.OTHER  # a later version's, or damaged where nothing can be moved
                continue
            if self._is_trusted(existing) or not self._is_trusted(manifest):
                if existing.same_content(manifest):
                    return Put.SAME
                if existing.epoch >= manifest.epoch:
                    return Put.OTHER
            self.backend.remove_if(path, found)
        raise StoreError(f"the manifest {path} in the cache at {self.url} keeps changing")

    def drop_manifest(self, manifest: Manifest) -> bool:
        """Removes exactly this manifest, because what it names is gone; False if another one is there."""
        return self.backend.remove_if(self.entry_path(manifest.key), manifest.encode())

    def entries(self) -> Iterator[Manifest]:
        """Every manifest of the namespace, in no order. For administration: lists the whole namespace."""
        paths = self.backend.walk(f"entries/{self.namespace}")
        keys = filter(is_digest, (path.rpartition("/")[2].removesuffix(".json") for path in paths))
        while some := list(itertools.islice(keys, _TOGETHER)):
            yield from self.read_manifests(some).values()

    def _is_trusted(self, manifest: Manifest) -> bool:
        return self.trust is not None and self.trust.verifier.trusts(manifest, self.namespace)

    def entry_path(self, key: str) -> str:
        return f"entries/{self.namespace}/{check_digest(key)[:2]}/{key}.json"

    def _decoded(self, path: str, data: bytes, key: str) -> Manifest | None:
        try:
            return decode_manifest(data, key=key)
        except UnknownSchemaError:
            return None
        except ValueError as error:
            self._quarantine(path, f"is not a manifest: {error}")
            return None

    def _quarantine(self, path: str, why: str) -> None:
        self.quarantined += 1
        target = f"quarantine/{int(time.time())}-{os.urandom(4).hex()}-{path.rpartition('/')[2]}"
        try:
            self.backend.move(path, target)
        except StoreError as error:
            log.warning("%s in the cache at %s %s, and could not be moved away: %s", path, self.url, why, error)
        else:
            log.warning("%s in the cache at %s %s; moved to %s", path, self.url, why, target)


def blob_path(sha256: str) -> str:
    """Where the blob with this digest is kept, below the layout directory. Raises ValueError for what is no digest."""
    return f"blobs/sha256/{check_digest(sha256)[:2]}/{sha256}"
