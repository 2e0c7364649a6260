"""Where the cache is and how it behaves: option, then environment, then files, then default."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cache_server.errors import CacheError
from cache_server.names import check_job, check_namespace
from cache_server.permissions import permissions_named, refuse_unsafe
from cache_server.quantities import parse_size
from neuron_runtime.config.layers import settings_environment

if TYPE_CHECKING:
    from cache_server.trust.signatures import Trust

_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off", ""})
_MODES = ("read-write", "read-only", "overlay")


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """One cache's settings. Times are seconds.

    url: the shared store (a directory, `file://`, `s3://`, `memory://`, a service's `http(s)://`); None: local alone
    local_dir: this host's own tier
    namespace: keeps teams or NeuronCore generations that share a store apart
    permissions: `group`, `private` or `world-read`, for new files of a shared directory; the local tier is private
    lease_seconds: without a sign of life for this long, an owner is taken for dead
    wait_seconds: how long a job waits for another one's compile before it compiles for itself
    failure_ttl_seconds: how long a compiler error is remembered; 0 for not at all
    retry_failures: compile again what is remembered to have failed
    verify: `digest` checks the digest at each hit; `always` compiles as well and compares (for CI)
    trusted_keys: public keys whose signatures of manifests are believed, or the file that holds them
    require_signature: use nothing of the shared tier that no trusted key has signed
    signing_key: the file of the private key that this process signs what it publishes with
    enabled: False compiles everything and touches no tier
    compile_slots: compiles at once on this host; 0 for no limit, None for what processors and memory allow
    compile_memory: bytes that one compile is taken to need
    job: the name under which the keys of this process are written down; None for no name
    mode: `read-write`; `read-only` writes nothing that is shared and takes no lease; `overlay` has a base
    overlay: the base of mode `overlay`, a store or a directory in the local tier's layout; it is only read
    require_hit: raise CacheError instead of compiling
    local_max_bytes: the local tier's least recently used NEFFs go once it is larger; None for no limit
    budget_seconds: how long one request may be delayed by a shared store that does not work
    """

    url: str | None
    local_dir: Path
    namespace: str = "default"
    permissions: str = "group"
    lease_seconds: float = 12.0
    wait_seconds: float = 3600.0
    failure_ttl_seconds: float = 3600.0
    retry_failures: bool = False
    verify: str = "digest"
    trusted_keys: str | None = None
    require_signature: bool = False
    signing_key: Path | None = None
    enabled: bool = True
    compile_slots: int | None = None
    compile_memory: int = 8 << 30
    job: str | None = None
    mode: str = "read-write"
    overlay: str | None = None
    require_hit: bool = False
    local_max_bytes: int | None = None
    budget_seconds: float = 5.0

    def __post_init__(self) -> None:
        check_namespace(self.namespace)
        permissions_named(self.permissions)
        if self.verify not in ("digest", "always"):
            raise CacheError(f"no such way to verify: {self.verify!r}", hint="choose digest or always")
        if not 0.05 <= self.lease_seconds <= 3600:
            raise CacheError(
                f"a lease of {self.lease_seconds} s makes no sense", hint="choose 0.05 to 3600 s; 12 is the default"
            )
        if not (self.wait_seconds >= 0 and self.failure_ttl_seconds >= 0):
            raise CacheError("a waiting time and a failure's time limit are 0 or more seconds")
        if (self.compile_slots is not None and self.compile_slots < 0) or self.compile_memory <= 0:
            raise CacheError("compile slots are 0 or more, and a compile needs more than 0 bytes")
        if self.job is not None:
            check_job(self.job)
        self._check_mode()
        if self.local_max_bytes is not None and self.local_max_bytes <= 0:
            raise CacheError("the local tier's limit is more than 0 bytes", hint="leave it out for no limit")
        if not 0.05 <= self.budget_seconds <= 3600:
            raise CacheError(
                f"a budget of {self.budget_seconds} s makes no sense", hint="choose 0.05 to 3600 s; 5 is the default"
            )

    @property
    def read_only(self) -> bool:
        """Whether nothing that is shared may be written."""
        return self.mode == "read-only"

    def _check_mode(self) -> None:
        if self.mode not in _MODES:
            raise CacheError(f"no such cache mode: {self.mode!r}", hint=f"choose one of {', '.join(_MODES)}")
        if self.mode == "overlay" and self.overlay is None:
            raise CacheError(
                "the cache mode overlay needs a base", hint="set `NEURON_ENV_CACHE_OVERLAY` to a directory or a store"
            )
        if self.require_hit and (self.verify == "always" or not self.enabled):
            raise CacheError(
                "a cache that must hit cannot compile as well",
                hint="unset `NEURON_ENV_CACHE_REQUIRE_HIT`, or `NEURON_ENV_CACHE_VERIFY` and the variables that "
                "switch the cache off",
            )

    def trust(self) -> Trust | None:
        """What the settings say of signatures; None for nothing. Raises CacheError for keys that cannot be used."""
        if not (self.trusted_keys or self.require_signature or self.signing_key):
            return None
        from cache_server.trust.signatures import Trust

        return Trust.of(trusted_keys=self.trusted_keys, required=self.require_signature, signing_key=self.signing_key)

    @classmethod
    def from_environment(
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        url: str | None = None,
        local_dir: str | os.PathLike[str] | None = None,
        namespace: str | None = None,
        permissions: str | None = None,
        lease_seconds: float | None = None,
        wait_seconds: float | None = None,
        failure_ttl_seconds: float | None = None,
        retry_failures: bool | None = None,
        verify: str | None = None,
        mode: str | None = None,
        overlay: str | None = None,
        require_hit: bool | None = None,
        local_max_bytes: int | None = None,
    ) -> CacheSettings:
        """Settings from options that are not None, then the environment, then configuration files, then defaults.

        Read are `NEURON_ENV_CACHE_URL` (`none` for no shared store), `_LOCAL_DIR`, `_NAMESPACE`, `_PERMISSIONS`,
        `_LEASE_SECONDS`, `_WAIT_SECONDS`, `_FAILURE_TTL_SECONDS`, `_RETRY_FAILURES`, `_VERIFY`, `_MODE`, `_OVERLAY`,
        `_REQUIRE_HIT`, `_LOCAL_MAX_BYTES`, `_BUDGET_SECONDS`, `_TRUSTED_KEYS`, `_REQUIRE_SIGNATURE` and `_SIGNING_KEY`;
        and of the vendor's, where ours are unset: `NEURON_COMPILE_CACHE_URL` if it is a directory,
        `TORCH_NEURONX_NEFF_CACHE_DIR` (the same layout as the local tier), `TORCH_NEURONX_NEFF_CACHE_LOCK_TIMEOUT` and
        `TORCH_NEURONX_NEFF_DISABLE_CACHE`. And `NEURON_ENV_JOB`, `NEURON_ENV_COMPILE_SLOTS` (`auto` for None) and
        `NEURON_ENV_COMPILE_MEMORY`.

        Raises CacheError on a value that makes no sense, and when a default place is not safe to keep code in.
        """
        env = _Environment(settings_environment() if environ is None else environ)
        url = url or env.text("NEURON_ENV_CACHE_URL") or env.vendor_directory("NEURON_COMPILE_CACHE_URL")
        chosen_local = local_dir or env.text("NEURON_ENV_CACHE_LOCAL_DIR", "TORCH_NEURONX_NEFF_CACHE_DIR")
        if permissions is None:
            # A user's own cache is nobody else's business; a store that was named is there to be shared.
            permissions = env.text("NEURON_ENV_CACHE_PERMISSIONS") or ("group" if url else "private")
        if url is None:
            shared = env.cache_home() / "shared"
            refuse_unsafe(shared, setting="NEURON_ENV_CACHE_URL")
            url = str(shared)
        if chosen_local:
            local = Path(chosen_local).expanduser().absolute()
        else:
            local = env.cache_home() / "local"
            refuse_unsafe(local, setting="NEURON_ENV_CACHE_LOCAL_DIR")
        if lease_seconds is None:
            lease_seconds = env.seconds("NEURON_ENV_CACHE_LEASE_SECONDS", 12.0)
        if wait_seconds is None:
            wait_seconds = env.seconds(
                "NEURON_ENV_CACHE_WAIT_SECONDS", env.seconds("TORCH_NEURONX_NEFF_CACHE_LOCK_TIMEOUT", 3600.0)
            )
        if failure_ttl_seconds is None:
            failure_ttl_seconds = env.seconds("NEURON_ENV_CACHE_FAILURE_TTL_SECONDS", 3600.0)
        if retry_failures is None:
            retry_failures = env.flag("NEURON_ENV_CACHE_RETRY_FAILURES")
        signing_key = env.text("NEURON_ENV_CACHE_SIGNING_KEY")
        if require_hit is None:
            require_hit = env.flag("NEURON_ENV_CACHE_REQUIRE_HIT")
        overlay = overlay or env.text("NEURON_ENV_CACHE_OVERLAY")
        compile_memory = env.size("NEURON_ENV_COMPILE_MEMORY")
        return cls(
            url=None if url.lower() == "none" else url,
            local_dir=local,
            namespace=namespace or env.text("NEURON_ENV_CACHE_NAMESPACE") or "default",
            permissions=permissions,
            lease_seconds=lease_seconds,
            wait_seconds=wait_seconds,
            failure_ttl_seconds=failure_ttl_seconds,
            retry_failures=retry_failures,
            verify=verify or env.text("NEURON_ENV_CACHE_VERIFY") or "digest",
            trusted_keys=env.text("NEURON_ENV_CACHE_TRUSTED_KEYS"),
            require_signature=env.flag("NEURON_ENV_CACHE_REQUIRE_SIGNATURE"),
            signing_key=Path(signing_key).expanduser() if signing_key else None,
            enabled=not env.flag("TORCH_NEURONX_NEFF_DISABLE_CACHE"),
            compile_slots=env.count("NEURON_ENV_COMPILE_SLOTS"),
            compile_memory=8 << 30 if compile_memory is None else compile_memory,
            job=env.text("NEURON_ENV_JOB"),
            mode=mode or env.text("NEURON_ENV_CACHE_MODE") or ("overlay" if overlay else "read-write"),
            overlay=overlay,
            require_hit=require_hit,
            local_max_bytes=local_max_bytes or env.size("NEURON_ENV_CACHE_LOCAL_MAX_BYTES"),
            budget_seconds=env.seconds("NEURON_ENV_CACHE_BUDGET_SECONDS", 5.0),
        )


class _Environment:
    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values

    def text(self, *names: str) -> str | None:
        """The first of the variables that is set and not empty."""
        return next((self._values[name] for name in names if self._values.get(name)), None)

    def vendor_directory(self, name: str) -> str | None:
        """A vendor's cache place where it is a directory; None where it is something else."""
        text = self.text(name)
        return text if text and ("://" not in text or text.startswith("file://")) else None

    def seconds(self, name: str, default: float) -> float:
        text = self.text(name)
        if text is None:
            return default
        try:
            return float(text)
        except ValueError:
            raise CacheError(f"`{name}` is not a number of seconds: {text!r}") from None

    def count(self, name: str) -> int | None:
        """A number of things; None for `auto` and where nothing is set."""
        text = self.text(name)
        if text is None or text.strip().lower() == "auto":
            return None
        if not text.strip().isdecimal():
            raise CacheError(f"`{name}` is neither a number nor auto: {text!r}")
        return int(text)

    def size(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            return parse_size(text)
        except ValueError as error:
            raise CacheError(f"`{name}`: {error}") from None

    def flag(self, name: str) -> bool:
        text = self._values.get(name, "").strip().lower()
        if text not in _TRUE | _FALSE:
            raise CacheError(f"`{name}` is neither yes nor no: {text!r}", hint="use 1 or 0")
        return text in _TRUE

    def cache_home(self) -> Path:
        chosen = self.text("XDG_CACHE_HOME")
        # The standard says that a relative path is to be ignored.
        if chosen and Path(chosen).is_absolute():
            return Path(chosen) / "neuron-env"
        try:
            return Path.home() / ".cache" / "neuron-env"
        except RuntimeError:
            raise CacheError(
                "this user has no home directory to keep the cache in",
                hint="set `XDG_CACHE_HOME`, or both `NEURON_ENV_CACHE_URL` and `NEURON_ENV_CACHE_LOCAL_DIR`",
            ) from None
