"""Which bucket an `s3://` URL names, and how its server is spoken to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from cache_server.errors import CacheError
from neuron_runtime.config.layers import settings_environment

_ADDRESSING = ("path", "virtual")


@dataclass(frozen=True, slots=True)
class S3Options:
    """How to reach an S3 server. What is None, boto3 finds in its usual places.

    endpoint: the server's URL; None for Amazon's
    addressing: `path` (endpoint/bucket/key) or `virtual` (bucket.endpoint/key)
    timeout_seconds: how long a connection may be silent before the request is tried again
    """

    endpoint: str | None = None
    region: str | None = None
    addressing: str = "virtual"
    timeout_seconds: float = 5.0

    def __post_init__(self) -> None:
        if self.addressing not in _ADDRESSING:
            raise CacheError(
                f"no such way to address a bucket: {self.addressing!r}",
                hint="set `NEURON_ENV_CACHE_S3_ADDRESSING` to path or virtual",
            )
        if not 0.05 <= self.timeout_seconds <= 300:
            raise CacheError(
                f"a time-out of {self.timeout_seconds} s for S3 makes no sense",
                hint="set `NEURON_ENV_CACHE_S3_TIMEOUT` to 0.05 to 300 s; 5 is the default",
            )
        if self.endpoint is not None and urlsplit(self.endpoint).scheme not in ("http", "https"):
            raise CacheError(
                f"an S3 endpoint is an http:// or https:// URL, and this is not: {self.endpoint!r}",
                hint="set `NEURON_ENV_CACHE_S3_ENDPOINT` to something like https://s3.example.com",
            )

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> S3Options:
        """Reads `NEURON_ENV_CACHE_S3_ENDPOINT`, `_ADDRESSING` and `_TIMEOUT`, then the variables of the AWS tools.

        A server of one's own is addressed by path unless told otherwise: its bucket names are seldom in the DNS.
        Raises CacheError on a value that makes no sense.
        """
        env = settings_environment() if environ is None else environ
        names = ("NEURON_ENV_CACHE_S3_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
        endpoint = next((env[name] for name in names if env.get(name)), None)
        seconds = env.get("NEURON_ENV_CACHE_S3_TIMEOUT") or "5"
        try:
            timeout = float(seconds)
        except ValueError:
            raise CacheError(f"`NEURON_ENV_CACHE_S3_TIMEOUT` is not a number of seconds: {seconds!r}") from None
        return cls(
            endpoint=endpoint,
            region=env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or None,
            addressing=env.get("NEURON_ENV_CACHE_S3_ADDRESSING") or ("path" if endpoint else "virtual"),
            timeout_seconds=timeout,
        )


def parse_s3_url(url: str) -> tuple[str, str]:
    """The bucket and the prefix, without slashes around it, of `s3://bucket/prefix`. Raises CacheError."""
    bucket, _, prefix = url.removeprefix("s3://").partition("/")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]", bucket):
        raise CacheError(
            f"no bucket can be named {bucket!r}: {url}", hint="a store in S3 is s3://bucket or s3://bucket/prefix"
        )
    if "?" in prefix or "#" in prefix:
        raise CacheError(
            f"an s3:// URL takes no options, but this one has some: {url}",
            hint="set `NEURON_ENV_CACHE_S3_ENDPOINT` and its like instead",
        )
    return bucket, prefix.strip("/")
