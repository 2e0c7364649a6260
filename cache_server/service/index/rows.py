"""What the index knows of one thing in the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cache_server.backends import Found
from cache_server.manifest import Blob, Manifest

NEFF, FAILURE, PLAIN = "neff", "failure", "plain"
_TEXT_LIMIT = 2000  # characters of a failure that a dashboard shows


@dataclass(frozen=True, slots=True)
class EntryRow:
    """A NEFF, a remembered failure, or a plain object (whose `key` is its path). Times are seconds since 1970.

    `own_bytes` is what it has beside its blobs: a manifest, or a plain object's content. `version` is what the store
    calls its present state, empty where that is not known. `compile_seconds` is what a hit saves, `took_seconds` how
    long the compile took, or failed to.
    """

    namespace: str
    key: str
    kind: str
    own_bytes: int
    created_at: float
    used_at: float
    blobs: frozenset[Blob] = frozenset()
    version: str = ""
    uses: int = 0
    label: str = ""
    compile_seconds: float = 0.0
    host: str = ""
    text: str = ""
    expires_at: float | None = None
    epoch: int = 0
    took_seconds: float = 0.0
    pinned: bool = False

    @property
    def size(self) -> int:
        """Bytes of its content."""
        return self.own_bytes if self.kind == PLAIN else sum(blob.size for blob in self.blobs)

    @classmethod
    def of_manifest(cls, namespace: str, manifest: Manifest, *, own_bytes: int, version: str = "") -> EntryRow:
        failure = manifest.failure
        return cls(
            namespace,
            manifest.key,
            FAILURE if failure else NEFF,
            own_bytes,
            created_at=manifest.created_at,
            used_at=manifest.created_at,
            blobs=frozenset(manifest.files.values()),
            version=version,
            label=manifest.label,
            compile_seconds=0.0 if failure else manifest.producer.compile_seconds,
            host=manifest.producer.host,
            text=failure.text[-_TEXT_LIMIT:] if failure else "",
            expires_at=failure.expires_at if failure else None,
            epoch=manifest.epoch,
            took_seconds=manifest.producer.compile_seconds,
        )

    @classmethod
    def of_object(cls, namespace: str, found: Found) -> EntryRow:
        """A plain object, as a scan or a look at it found it."""
        at = found.modified_at
        return cls(namespace, found.path, PLAIN, found.size, at, at, version=found.version)

    def to_json(self) -> dict[str, Any]:
        """The summary of `GET …/entries`."""
        return {
            "key": self.key,
            "kind": self.kind,
            "label": self.label,
            "size": self.size,
            "created_at": self.created_at,
            "used_at": self.used_at,
            "uses": self.uses,
            "compile_seconds": self.compile_seconds,
            "took_seconds": self.took_seconds,
            "host": self.host,
            "epoch": self.epoch,
            "pinned": self.pinned,
            "expires_at": self.expires_at,
        }


@dataclass(frozen=True, slots=True)
class BlobRow:
    """A blob, as a scan or this replica's own write saw it.

    `settled`: everybody who may name this version of it is known.
    """

    found: Found
    settled: bool

    @property
    def sha256(self) -> str:
        return self.found.path.rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class NamespaceStock:
    """What one namespace has; `bytes` counts a blob once, and those it shares with other namespaces too."""

    entries: int = 0
    failures: int = 0
    plain: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Stock:
    """What the store has, as far as the index knows."""

    blobs: int
    bytes: int
    namespaces: dict[str, NamespaceStock]

    def of(self, namespace: str) -> NamespaceStock:
        return self.namespaces.get(namespace, NamespaceStock())
