"""What a cache service's refusals mean for whoever asked."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cache_server.errors import PacedError, StoreError, UnavailableError

_TYPE = "urn:neuron-env:cache:"
_LONGEST_RETRY_AFTER = 3600.0
_TEMPORARY = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a small question: header names are in lower case, `body` is whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def document(self) -> dict[str, Any]:
        """The JSON object in the body. Raises UnavailableError where it is none: something on the way broke it."""
        try:
            value = json.loads(self.body)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise UnavailableError("the cache service's answer is not the JSON object that it should be")
        return value

    @property
    def is_problem(self) -> bool:
        """Whether the service itself says what is wrong, as opposed to something before it."""
        return self.headers.get("content-type", "").startswith("application/problem+json")

    @property
    def slug(self) -> str:
        """Which of the service's problems this is; empty where the answer is not a problem of the service's own."""
        if not self.is_problem:
            return ""
        with contextlib.suppress(UnavailableError):
            kind = str(self.document().get("type", ""))
            if kind.startswith(_TYPE):
                return kind.removeprefix(_TYPE)
        return ""

    def told(self, name: str, limit: int = 300) -> str:
        """A text of the problem document; empty where there is none."""
        with contextlib.suppress(UnavailableError):
            value = self.document().get(name)
            if isinstance(value, str):
                return value[:limit]
        return ""


def is_temporary(status: int) -> bool:
    """True for an answer that another attempt may better."""
    return status in _TEMPORARY


def temporary(url: str, status: int, headers: Mapping[str, str]) -> UnavailableError:
    """The error for an answer that says: not now."""
    pause: float | None = None
    with contextlib.suppress(ValueError):  # the other form is a date, which needs equal clocks
        pause = min(max(float(headers.get("retry-after", "")), 0.0), _LONGEST_RETRY_AFTER)
    if status == 429 and pause is not None:
        return PacedError(f"the cache at {url} asks this client to be slower (HTTP {status})", retry_after=pause)
    return UnavailableError(
        f"the cache at {url} cannot answer now (HTTP {status})",
        hint="see the service's own log" if status == 500 else None,
        retry_after=pause,
    )


def refusal(url: str, answer: Answer) -> StoreError:
    """The error for an answer that another attempt would not better.

    Texts are the same for the same trouble, so that it is told once.
    """
    slug, detail = answer.slug, answer.told("detail") or answer.told("title")
    hint = answer.told("hint") or None
    if answer.status == 401:
        return StoreError(
            f"the cache at {url} does not know this client: {detail or 'it wants another token'}",
            hint="set `NEURON_ENV_CACHE_TOKEN` or `NEURON_ENV_CACHE_TOKEN_FILE` to a token of this service",
        )
    if answer.status == 403:
        return StoreError(
            f"the cache at {url} does not allow that: {detail or 'forbidden'}",
            hint=hint or "ask for a token with that right, or set `NEURON_ENV_CACHE_MODE` to read-only",
        )
    if 300 <= answer.status < 400:
        return StoreError(
            f"the cache at {url} sends its clients elsewhere (HTTP {answer.status})",
            hint="set `NEURON_ENV_CACHE_URL` to the address that it names: a token is not taken to another place",
        )
    if not slug and answer.is_problem:
        return UnavailableError(f"the cache at {url} is garbled on the way (HTTP {answer.status})")
    if not slug:
        return StoreError(
            f"there is no cache service at {url}: it answers HTTP {answer.status}",
            hint="correct `NEURON_ENV_CACHE_URL`; the path before /v1 belongs to it",
        )
    return StoreError(f"the cache at {url} refuses: {detail or slug}", hint=hint)
