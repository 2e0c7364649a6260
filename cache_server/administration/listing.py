"""Choosing entries: by filter, by order, by the beginning of a key. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from cache_server.errors import CacheError
from cache_server.names import is_digest

_SHORTEST_PREFIX = 4


class Listed(Protocol):
    """What entries are chosen by. Sizes are bytes, times seconds."""

    @property
    def key(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def is_failure(self) -> bool: ...
    @property
    def size(self) -> int: ...
    @property
    def created_at(self) -> float: ...
    @property
    def saved_seconds(self) -> float: ...


L = TypeVar("L", bound=Listed)

_ORDERS: dict[str, Callable[[Listed], tuple[float, str]]] = {
    "age": lambda entry: (-entry.created_at, entry.key),
    "size": lambda entry: (-entry.size, entry.key),
    "saved": lambda entry: (-entry.saved_seconds, entry.key),
}


@dataclass(frozen=True, slots=True)
class Filter:
    """Which entries to list; None leaves a question open. Sizes are bytes, times seconds."""

    label: str | None = None  # part of the label
    kind: str | None = None  # neff or failure
    larger_than: int | None = None
    older_than: float | None = None

    def takes(self, entry: Listed, *, now: float) -> bool:
        return (
            (self.label is None or self.label in entry.label)
            and (self.kind is None or entry.is_failure == (self.kind == "failure"))
            and (self.larger_than is None or entry.size > self.larger_than)
            and (self.older_than is None or entry.created_at < now - self.older_than)
        )


def select(entries: Iterable[L], wanted: Filter, *, now: float, sort: str = "age", limit: int | None = None) -> list[L]:
    """The entries that pass, by `age` (newest first), `size` or `saved` (largest first), no more than `limit`."""
    return sorted((entry for entry in entries if wanted.takes(entry, now=now)), key=_ORDERS[sort])[:limit]


def beginning_of_key(text: str) -> str:
    """`text` as keys are written. Raises CacheError unless a key can begin with it, and few do."""
    wanted = text.strip().lower()
    if len(wanted) < _SHORTEST_PREFIX or not is_digest(wanted.ljust(64, "0")):
        raise CacheError(
            f"not a key, or the beginning of one: {text[:80]!r}",
            hint=f"give at least {_SHORTEST_PREFIX} of its 64 hexadecimal digits; `neuron-env cache ls` lists them",
        )
    return wanted


def resolve(text: str, keys: Iterable[str], *, what: str = "entry") -> str:
    """The one key that begins with `text`. Raises CacheError if there is none, or more than one."""
    wanted = beginning_of_key(text)
    matches = sorted({key for key in keys if key.startswith(wanted)})
    if not matches:
        raise CacheError(f"there is no {what} whose key begins with {wanted}", hint="type `neuron-env cache ls`")
    if len(matches) > 1:
        shown = ", ".join(key[:16] for key in matches[:4]) + (", …" if len(matches) > 4 else "")
        raise CacheError(f"{len(matches)} keys begin with {wanted}: {shown}", hint="give more of the key")
    return matches[0]
