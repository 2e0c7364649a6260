"""Who sent a request, and what that allows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from cache_server.errors import CacheError
from cache_server.names import check_namespace


class Scope(IntEnum):
    """What a principal may do; each includes the ones below it."""

    NONE = 0
    READ = 1
    WRITE = 2
    ADMIN = 3

    @classmethod
    def named(cls, text: str) -> Scope:
        """The scope that people and files call `text`. Raises ValueError."""
        if text not in ("none", "read", "write", "admin"):
            raise ValueError(f"not a scope: {text[:40]!r}; choose read, write or admin")
        return cls[text.upper()]


@dataclass(frozen=True, slots=True)
class Principal:
    """Whoever sent a request, as log lines name it. `namespaces` None means all of them."""

    name: str
    scope: Scope
    namespaces: frozenset[str] | None = None

    def sees(self, namespace: str) -> bool:
        """Whether the principal may know of a namespace at all."""
        return self.scope >= Scope.READ and (self.namespaces is None or namespace in self.namespaces)

    def may(self, wanted: Scope, namespace: str | None) -> bool:
        """Whether it may do what needs `wanted` in `namespace`; None: outside of any, where answers are filtered."""
        if self.scope < wanted:
            return False
        return namespace is None or self.namespaces is None or namespace in self.namespaces


def namespaces_of(names: tuple[str, ...] | list[str]) -> frozenset[str] | None:
    """The namespaces that people list; None, which is all of them, for none or for `*`.

    Raises CacheError for what cannot be a namespace.
    """
    if not names or "*" in names:
        if len(set(names)) > 1:
            raise CacheError("`*` means every namespace, so no other can stand beside it")
        return None
    return frozenset(check_namespace(name) for name in names)
