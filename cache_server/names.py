"""The one place that decides which names may become paths in a store."""

from __future__ import annotations

import re

from cache_server.errors import CacheError

_HEX64 = re.compile(r"[0-9a-f]{64}")
_NAMESPACE = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def is_digest(text: str) -> bool:
    """True for a lower-case hexadecimal SHA-256, which keys are too."""
    return _HEX64.fullmatch(text) is not None


def check_digest(text: str) -> str:
    """Returns `text`. Raises ValueError unless it is a lower-case hexadecimal SHA-256."""
    if not is_digest(text):
        raise ValueError(f"not a SHA-256 in lower-case hexadecimal: {text[:80]!r}")
    return text


def check_namespace(text: str) -> str:
    """Returns `text`. Raises CacheError unless it is a namespace."""
    if _NAMESPACE.fullmatch(text) is None:
        raise CacheError(
            f"not a cache namespace: {text[:80]!r}",
            hint="use 1 to 64 of a-z, 0-9, dot, underscore and dash, beginning with a letter or digit",
        )
    return text


def check_job(text: str) -> str:
    """Returns `text`. Raises CacheError unless it can name a job."""
    if _JOB.fullmatch(text) is None:
        raise CacheError(
            f"not a name of a job: {text[:140]!r}",
            hint="use 1 to 128 letters, digits, dots, underscores and dashes, beginning with a letter or digit",
        )
    return text
