"""Where a cache service is, who asks it, and how long it may take to answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from cache_server.errors import CacheError, StoreError
from neuron_runtime.config.layers import settings_environment

_TOKEN = re.compile(r"[\x21-\x7e]{1,4096}")
_URL_FORM = "a cache service is http://host, https://host:port or https://host/prefix"


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """How to reach a cache service.

    url: `http(s)://host[:port][/prefix]`, without a slash at its end
    token, token_file: what names this client to the service; a file is read again when the service refuses its token
    ca_file: PEM certificates of the authorities that may sign for the service; None for the system's
    client_cert, client_key: PEM files that name this client by TLS
    timeout_seconds: how long the service may be silent before a request is tried again
    """

    url: str
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    ca_file: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None
    timeout_seconds: float = 2.0

    def __post_init__(self) -> None:
        if not 0.05 <= self.timeout_seconds <= 300:
            raise CacheError(
                f"a time-out of {self.timeout_seconds} s for the cache service makes no sense",
                hint="set `NEURON_ENV_CACHE_HTTP_TIMEOUT` to 0.05 to 300 s; 2 is the default",
            )
        if self.client_key is not None and self.client_cert is None:
            raise CacheError(
                "a client's key without its certificate", hint="set `NEURON_ENV_CACHE_CLIENT_CERT` to a PEM file too"
            )
        if self.token is not None:
            _check_token(self.token, "`NEURON_ENV_CACHE_TOKEN`")

    @classmethod
    def from_environment(cls, url: str, environ: Mapping[str, str] | None = None) -> RemoteOptions:
        """Reads `NEURON_ENV_CACHE_TOKEN` or `_TOKEN_FILE`, `_CA_FILE`, `_CLIENT_CERT`, `_CLIENT_KEY`, `_HTTP_TIMEOUT`.

        Raises CacheError on a URL or a value that makes no sense. Reads no file yet.
        """
        env = settings_environment() if environ is None else environ
        seconds = env.get("NEURON_ENV_CACHE_HTTP_TIMEOUT") or "2"
        try:
            timeout = float(seconds)
        except ValueError:
            raise CacheError(f"`NEURON_ENV_CACHE_HTTP_TIMEOUT` is not a number of seconds: {seconds!r}") from None
        return cls(
            url=parse_service_url(url),
            token=(env.get("NEURON_ENV_CACHE_TOKEN") or "").strip() or None,
            token_file=_path(env.get("NEURON_ENV_CACHE_TOKEN_FILE")),
            ca_file=_path(env.get("NEURON_ENV_CACHE_CA_FILE")),
            client_cert=_path(env.get("NEURON_ENV_CACHE_CLIENT_CERT")),
            client_key=_path(env.get("NEURON_ENV_CACHE_CLIENT_KEY")),
            timeout_seconds=timeout,
        )

    def current_token(self) -> str | None:
        """The token as it is now. Raises StoreError where its file cannot be read."""
        if self.token is not None or self.token_file is None:
            return self.token
        try:
            text = self.token_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise StoreError(
                f"the token of the cache service cannot be read from {self.token_file}: {error}",
                hint="correct `NEURON_ENV_CACHE_TOKEN_FILE`",
            ) from error
        return _check_token(text, str(self.token_file))


def parse_service_url(url: str) -> str:
    """Returns the URL without a slash at its end. Raises CacheError unless a cache service can be there."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise CacheError(f"not a URL: {error}", hint=_URL_FORM) from None
    if parts.username is not None or parts.password is not None:
        # The URL itself is left out: it holds a secret.
        raise CacheError(
            f"the URL of a cache service holds no password, but the one on {parts.hostname} does",
            hint="set `NEURON_ENV_CACHE_TOKEN` or `NEURON_ENV_CACHE_TOKEN_FILE` instead",
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise CacheError(f"not the URL of a cache service: {url}", hint=_URL_FORM)
    if parts.query or parts.fragment:
        raise CacheError(f"the URL of a cache service takes no options, but this one has some: {url}", hint=_URL_FORM)
    return url.rstrip("/").removesuffix("/v1")


def _check_token(text: str, where: str) -> str:
    if _TOKEN.fullmatch(text) is None:
        # The text itself may be nearly right, so it is not shown.
        raise CacheError(f"{where} holds no token: it must be one word of printable ASCII")
    return text


def _path(text: str | None) -> Path | None:
    return Path(text).expanduser() if text else None
