"""What a request needs of the shared tier, whatever it is kept in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cache_server.backends import Content
from cache_server.leases.coordinator import Coordinator
from cache_server.manifest import Blob, Manifest
from cache_server.store import Put

if TYPE_CHECKING:
    from cache_server.trust.signatures import Trust


class BlobStream(Protocol):
    """A blob on its way into a store. Methods raise StoreError, and may be called from any thread, one at a time."""

    def append(self, data: bytes | memoryview) -> None:
        """Takes the next bytes. Raises DigestError if there are more than were announced."""
        ...

    def finish(self) -> None:
        """Puts the blob in its place. Raises DigestError, and throws it away, if it is not what was announced."""
        ...

    def abort(self) -> None:
        """Throws away what has arrived; does nothing after `finish`."""
        ...


class SharedStore(Protocol):
    """Blobs and manifests of one namespace. Methods raise StoreError when the place cannot be read or written.

    What does not verify counts as absent, in `quarantined` too. `url` is for messages.
    """

    namespace: str
    quarantined: int
    trust: Trust | None

    @property
    def url(self) -> str: ...

    def accepts(self, manifest: Manifest) -> bool:
        """Whether this reader may use a manifest that did not come from `read_manifest`: by its signature."""
        ...

    def list_again(self, manifest: Manifest) -> None:
        """Sees to it that a manifest that is published in its lease record is listed. Vouches for nothing."""
        ...

    def signed(self, manifest: Manifest) -> Manifest:
        """The manifest with this process's signature, if it signs."""
        ...

    def put_blob(self, data: bytes) -> Blob:
        """Stores `data`."""
        ...

    def read_blob(self, blob: Blob) -> bytes | None:
        """The content, its length and SHA-256 verified; None if it is missing or damaged."""
        ...

    def open_blob(self, sha256: str) -> Content | None:
        """A blob to be read piece by piece, not verified; None if it is missing. Close it."""
        ...

    def begin_blob(self, blob: Blob) -> BlobStream | None:
        """Begins a blob that comes piece by piece; None if it is there, and stays for who names it next."""
        ...

    def read_manifest(self, key: str) -> Manifest | None:
        """The manifest of `key`; None if there is none that this version can use and this reader believes."""
        ...

    def read_manifests(self, keys: Iterable[str]) -> dict[str, Manifest]:
        """The manifests of many keys at once; those that `read_manifest` would not give are left out."""
        ...

    def put_manifest(self, manifest: Manifest) -> Put:
        """Publishes a manifest unless one of the same or a later epoch is there. An earlier one gives way."""
        ...

    def drop_manifest(self, manifest: Manifest) -> bool:
        """Removes exactly this manifest, because what it names is gone; False if that is not to be done."""
        ...

    def entries(self) -> Iterator[Manifest]:
        """Every manifest of the namespace, in no order."""
        ...


@dataclass(frozen=True, slots=True)
class Trouble:
    """What a tier did about failures so far: requests it repeated, and times it began to leave its store alone."""

    retries: int = 0
    breaker_opened: int = 0
    breaker_is_open: bool = False


class SharedTier(Protocol):
    """A store and the leases on its keys."""

    @property
    def store(self) -> SharedStore: ...

    def coordinator(self, lease_seconds: float) -> Coordinator:
        """Leases that are given `lease_seconds` to show a sign of life, where their record does not say."""
        ...

    def trouble(self) -> Trouble: ...
