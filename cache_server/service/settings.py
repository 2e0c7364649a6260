"""How one process of the service runs: option, then environment, then files, then default."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from cache_server.errors import CacheError
from cache_server.names import check_namespace
from cache_server.permissions import permissions_named
from cache_server.quantities import parse_duration, parse_size
from neuron_runtime.config.layers import settings_environment

T = TypeVar("T")

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """One service's settings. Sizes are bytes, times seconds; None is no limit, or a thing that is not used.

    store: the URL of the store; every replica has the same
    listen: `host:port`; port 0 takes a free one
    state_dir: this replica's own directory, for an index that can be made again
    capacity: what the store may hold in all
    quota, quotas: what one namespace may hold, in general and by name
    max_age, max_ages: entries not used for so long are removed, in general and by the namespace's name
    keep_free: what stays free on the disk of a store that is a directory; by default a fiftieth of it, 1 GiB at most
    tls_cert, tls_key, client_ca: PEM files; with client_ca a client may show a certificate
    client_scopes: a TOML file that says what the certificates' subjects may do
    client_scope: `read`, `write` or `admin`, for whoever has a certificate, where no file says more
    anonymous: what a request without credentials may do: `none`, `read` or `write`; None: `write` on a loopback
        address until the store has a token, `none` otherwise
    signing_key: the file of the key that published manifests are signed with
    permissions: for new files of a store that is a directory
    audit_log: a file that gets a line for each change, beside the log
    log_format: `json` or `text`
    log_requests: whether each request gets a line
    blob_limit: of one blob
    body_limit: of one JSON document
    memory: for small blobs that are asked for often
    rate_limit: requests a second that one principal may make of this replica; None for no limit
    upload_limit: bodies of blobs that one principal may be sending to this replica at once; None for no limit
    redirect: whether large blobs in S3 are answered by a redirect to S3
    poll_seconds: how often a lease that somebody waits for is looked at, for changes by others than this process
    drain_seconds: what running requests get at the end
    drain_delay: between the signal to end and the end of listening, for load balancers to notice
    threads: for the store's blocking calls
    """

    store: str
    listen: str = "127.0.0.1:7878"
    state_dir: Path | None = None
    capacity: int | None = None
    quota: int | None = None
    quotas: Mapping[str, int] = field(default_factory=dict)
    max_age: float | None = None
    max_ages: Mapping[str, float] = field(default_factory=dict)
    keep_free: int | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    client_ca: Path | None = None
    client_scopes: Path | None = None
    client_scope: str | None = None
    anonymous: str | None = None
    signing_key: Path | None = None
    permissions: str = "group"
    audit_log: Path | None = None
    log_format: str = "json"
    log_requests: bool = True
    blob_limit: int = 1 << 44
    body_limit: int = 4 << 20
    memory: int = 256 << 20
    rate_limit: float | None = None
    upload_limit: int | None = None
    redirect: bool = True
    poll_seconds: float = 0.25
    drain_seconds: float = 30.0
    drain_delay: float = 0.0
    threads: int = 16

    def __post_init__(self) -> None:
        self.address  # noqa: B018  raises for what is no address
        permissions_named(self.permissions)
        for name in (*self.quotas, *self.max_ages):
            check_namespace(name)
        if self.store.startswith(("http://", "https://")):
            raise CacheError(
                f"the service keeps its store in a directory or in S3, not in another service: {self.store}",
                hint="give a directory, a file:// or an s3:// URL",
            )
        if self.anonymous not in (None, "none", "read", "write"):
            raise CacheError(f"no such scope for anonymous requests: {self.anonymous!r}", hint="none, read or write")
        if self.log_format not in ("json", "text"):
            raise CacheError(f"no such log format: {self.log_format!r}", hint="choose json or text")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise CacheError("TLS needs both a certificate and its key", hint="give `--tls-cert` and `--tls-key`")
        if self.client_ca is not None and self.tls_cert is None:
            raise CacheError("client certificates need TLS", hint="give `--tls-cert` and `--tls-key` as well")
        if self.client_scope not in (None, "read", "write", "admin"):
            raise CacheError(f"no such scope for certificates: {self.client_scope!r}", hint="read, write or admin")
        if (self.client_ca is None) != (self.client_scopes is None and self.client_scope is None):
            raise CacheError(
                "client certificates need both an authority and what they allow",
                hint="give `--client-ca`, and `--client-scopes` or `--client-scope`",
            )
        if self.client_scopes is not None and self.client_scope is not None:
            raise CacheError("what certificates allow is said twice", hint="`--client-scopes` or `--client-scope`")
        if not 0.01 <= self.poll_seconds <= 60 or not 1 <= self.threads <= 256:
            raise CacheError("poll_seconds is 0.01 to 60, threads 1 to 256")
        if (self.rate_limit is not None and not 0.1 <= self.rate_limit <= 1e6) or (
            self.upload_limit is not None and self.upload_limit < 1
        ):
            raise CacheError("a rate limit is 0.1 to 1000000 requests a second, an upload limit 1 or more")
        if self.drain_seconds < 0 or self.drain_delay < 0:
            raise CacheError("the time to drain is 0 or more seconds")

    @property
    def address(self) -> tuple[str, int]:
        """Where to listen. IPv6 is written `[::1]:7878`."""
        host, _, port = self.listen.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
            raise CacheError(f"not an address to listen on: {self.listen!r}", hint="write it like 127.0.0.1:7878")
        return host.removeprefix("[").removesuffix("]"), int(port)

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the service."""
        host = self.address[0]
        if host == "localhost":
            return True
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False

    @property
    def anonymous_scope(self) -> str:
        """What a request without credentials may do: `none`, `read` or `write`."""
        return self.anonymous or ("write" if self.loopback else "none")

    @classmethod
    def from_environment(
        cls, environ: Mapping[str, str] | None = None, *, log_format_default: str = "json", **options: Any
    ) -> ServiceSettings:
        """Settings from options that are not None, then `NEURON_ENV_SERVER_<NAME>`, then defaults.

        Raises CacheError on a value that makes no sense, and where no store is named.
        """
        env = settings_environment() if environ is None else environ
        values = {name: value for name, value in options.items() if value is not None}
        for name, (variable, read) in _VARIABLES.items():
            text = env.get(variable, "").strip()
            if name in values or not text:
                continue
            try:
                values[name] = read(text)
            except ValueError as error:
                raise CacheError(f"`{variable}`: {error}") from None
        if not values.get("store"):
            raise CacheError(
                "the service has no store to serve",
                hint="name it, such as `neuron-env cache serve /srv/neuron-cache`, or set `NEURON_ENV_SERVER_STORE`",
            )
        values.setdefault("log_format", log_format_default)
        return cls(**values)


def parse_quotas(text: str) -> dict[str, int]:
    """Reads `team-a=50GiB,team-b=1TiB`. Raises ValueError."""
    return _by_namespace(text, "size", parse_size)


def parse_max_ages(text: str) -> dict[str, float]:
    """Reads `team-a=30d,team-b=12h`. Raises ValueError."""
    return _by_namespace(text, "time", parse_duration)


def _by_namespace(text: str, what: str, read: Callable[[str], T]) -> dict[str, T]:
    values = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = item.partition("=")
        if not equals:
            raise ValueError(f"{item!r} is not of the form namespace={what}")
        values[name.strip()] = read(value)
    return values


def _flag(text: str) -> bool:
    if text.lower() not in _TRUE | _FALSE:
        raise ValueError(f"{text!r} is neither yes nor no; use 1 or 0")
    return text.lower() in _TRUE


def _path(text: str) -> Path:
    return Path(text).expanduser()


# Written out, so that a search for a variable finds it.
_VARIABLES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "store": ("NEURON_ENV_SERVER_STORE", str),
    "listen": ("NEURON_ENV_SERVER_LISTEN", str),
    "state_dir": ("NEURON_ENV_SERVER_STATE_DIR", _path),
    "capacity": ("NEURON_ENV_SERVER_CAPACITY", parse_size),
    "quota": ("NEURON_ENV_SERVER_QUOTA", parse_size),
    "quotas": ("NEURON_ENV_SERVER_QUOTAS", parse_quotas),
    "max_age": ("NEURON_ENV_SERVER_MAX_AGE", parse_duration),
    "max_ages": ("NEURON_ENV_SERVER_MAX_AGES", parse_max_ages),
    "keep_free": ("NEURON_ENV_SERVER_KEEP_FREE", parse_size),
    "tls_cert": ("NEURON_ENV_SERVER_TLS_CERT", _path),
    "tls_key": ("NEURON_ENV_SERVER_TLS_KEY", _path),
    "client_ca": ("NEURON_ENV_SERVER_CLIENT_CA", _path),
    "client_scopes": ("NEURON_ENV_SERVER_CLIENT_SCOPES", _path),
    "client_scope": ("NEURON_ENV_SERVER_CLIENT_SCOPE", str),
    "anonymous": ("NEURON_ENV_SERVER_ANONYMOUS", str),
    "signing_key": ("NEURON_ENV_SERVER_SIGNING_KEY", _path),
    "permissions": ("NEURON_ENV_SERVER_PERMISSIONS", str),
    "audit_log": ("NEURON_ENV_SERVER_AUDIT_LOG", _path),
    "log_format": ("NEURON_ENV_SERVER_LOG_FORMAT", str),
    "log_requests": ("NEURON_ENV_SERVER_LOG_REQUESTS", _flag),
    "blob_limit": ("NEURON_ENV_SERVER_BLOB_LIMIT", parse_size),
    "body_limit": ("NEURON_ENV_SERVER_BODY_LIMIT", parse_size),
    "memory": ("NEURON_ENV_SERVER_MEMORY", parse_size),
    "rate_limit": ("NEURON_ENV_SERVER_RATE_LIMIT", float),
    "upload_limit": ("NEURON_ENV_SERVER_UPLOAD_LIMIT", int),
    "redirect": ("NEURON_ENV_SERVER_REDIRECT", _flag),
    "poll_seconds": ("NEURON_ENV_SERVER_POLL_SECONDS", parse_duration),
    "drain_seconds": ("NEURON_ENV_SERVER_DRAIN_SECONDS", parse_duration),
    "drain_delay": ("NEURON_ENV_SERVER_DRAIN_DELAY", parse_duration),
    "threads": ("NEURON_ENV_SERVER_THREADS", int),
}
