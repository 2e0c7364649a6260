"""From a URL to the store and the lease records kept there."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from cache_server.backends import Backend
from cache_server.errors import CacheError, StoreError, UnavailableError
from cache_server.leases.coordinator import RecordCoordinator
from cache_server.leases.records import RecordStore
from cache_server.permissions import permissions_named
from cache_server.resilience.breaker import Breaker
from cache_server.store import LAYOUT, Store
from cache_server.tier import SharedTier, Trouble

if TYPE_CHECKING:
    from cache_server.trust.signatures import Trust


@dataclass(frozen=True, slots=True)
class Storage:
    """A shared tier whose users keep it themselves: entries in `store`, leases in `records`."""

    store: Store
    records: RecordStore
    breaker: Breaker | None = field(default=None, compare=False)

    def coordinator(self, lease_seconds: float) -> RecordCoordinator:
        return RecordCoordinator(self.records, self.store.record_name, default_lease_seconds=lease_seconds)

    def trouble(self) -> Trouble:
        return Trouble() if self.breaker is None else Trouble(0, self.breaker.opened, self.breaker.is_open)


def open_tier(
    url: str,
    *,
    namespace: str = "default",
    permissions: str = "group",
    read_only: bool = False,
    trust: Trust | None = None,
) -> SharedTier:
    """The shared tier of a job: what `open_storage` opens, or a cache service at `http(s)://host[:port][/prefix]`.

    A bucket gets a circuit breaker, as a service has. With `read_only` the store of a directory or a bucket refuses
    every change before it is made; `trust` signs and verifies manifests. Touches nothing yet. Raises CacheError as
    `open_storage` does.
    """
    if is_service(url):
        from cache_server.remote.options import RemoteOptions
        from cache_server.remote.tier import RemoteTier

        return RemoteTier.open(RemoteOptions.from_environment(url), namespace, trust)
    storage = _guarded_bucket(url, namespace, trust) if url.startswith("s3://") else None
    storage = storage or open_storage(url, namespace=namespace, permissions=permissions, trust=trust)
    if not read_only:
        return storage
    from cache_server.backends.readonly import ReadOnlyBackend

    backend: Backend = ReadOnlyBackend(storage.store.backend)
    return Storage(Store(backend, namespace, trust), storage.records, storage.breaker)


def open_storage(
    url: str, *, namespace: str = "default", permissions: str = "group", trust: Trust | None = None
) -> Storage:
    """Opens the shared tier at `url`: a directory, `file:///directory`, `s3://bucket/prefix`, or `memory://name`.

    Touches nothing yet: a place that is missing or forbidden shows at the first use. `permissions` are for directories;
    `trust` signs what is published and verifies what is read. Raises CacheError for a URL that cannot be a store, and
    for S3 without boto3 or with settings that make no sense; also for a cache service, which keeps its store to itself.
    """
    if is_service(url):
        raise CacheError(
            f"{url} is a cache service, and this works on its store",
            hint="give the URL of the store that the service keeps: a directory, a file:// or an s3:// URL",
        )
    if url.startswith("s3://"):
        from cache_server.backends.s3 import S3Backend
        from cache_server.backends.s3bucket import S3Bucket
        from cache_server.leases.s3 import S3Records

        bucket = S3Bucket(url, LAYOUT)
        return Storage(Store(S3Backend(bucket), namespace, trust), S3Records(bucket))

    if url.startswith("memory://"):
        from cache_server.backends.memory import MemoryBackend
        from cache_server.leases.memory import MemoryRecords

        memory = MemoryBackend(f"{url.rstrip('/')}/{LAYOUT}")
        return Storage(Store(memory, namespace, trust), MemoryRecords.at(memory.url))

    from cache_server.backends.posix import PosixBackend
    from cache_server.leases.posix import PosixRecords

    files = PosixBackend(_directory(url) / LAYOUT, permissions_named(permissions))
    return Storage(Store(files, namespace, trust), PosixRecords(files))


def is_service(url: str) -> bool:
    """Whether a cache service is meant, as opposed to a store."""
    return url.partition("://")[0].lower() in ("http", "https") and "://" in url


def _guarded_bucket(url: str, namespace: str, trust: Trust | None) -> Storage:
    from cache_server.backends.s3 import S3Backend
    from cache_server.backends.s3bucket import S3Bucket
    from cache_server.leases.s3 import S3Records
    from cache_server.resilience.guard import Guard

    plain = S3Bucket(url, LAYOUT)

    def probe() -> None:
        try:
            plain.head("probe")
        except UnavailableError:
            raise
        except StoreError:
            return  # it answers; what it says is for a request to find out

    # Each of its requests is three attempts already.
    breaker = Breaker(plain.url, probe, failures=1)
    bucket = S3Bucket(url, LAYOUT, guard=Guard(breaker))
    return Storage(Store(S3Backend(bucket), namespace, trust), S3Records(bucket), breaker)


def _directory(url: str) -> Path:
    if "://" not in url:
        return Path(url).expanduser().absolute()
    parts = urlsplit(url)
    if parts.scheme != "file":
        raise CacheError(
            f"no store of kind {parts.scheme}:// is known: {url}",
            hint="set `NEURON_ENV_CACHE_URL` to a directory (a mount that hosts share), a file://, s3:// or https:// "
            "URL, or none",
        )
    if parts.netloc not in ("", "localhost"):
        raise CacheError(
            f"a file:// URL names no host, but this one names {parts.netloc!r}: {url}",
            hint=f"perhaps file:///{parts.netloc}{parts.path} is meant",
        )
    return Path(unquote(parts.path))
