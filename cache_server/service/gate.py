"""Who a request comes from, and what it may do."""

from __future__ import annotations

from typing import Protocol

from starlette.requests import HTTPConnection

from cache_server.trust.principal import Principal, Scope

__all__ = ["AnonymousGate", "Gate", "Principal", "Scope"]


class Gate(Protocol):
    """Tells who sends a request."""

    @property
    def mode(self) -> str:
        """One line for the person who starts the service: how clients identify themselves."""
        ...

    async def knows_somebody(self) -> bool:
        """Whether anybody can show credentials at all. Raises StoreError."""
        ...

    async def admit(self, request: HTTPConnection) -> Principal:
        """The sender. Raises `errors.unauthorized(…)` for credentials that are wrong, revoked or expired.

        A request without credentials gets the anonymous principal, which may have no scope at all.
        """
        ...


class AnonymousGate:
    """Knows nobody: every request has the same scope."""

    def __init__(self, scope: Scope) -> None:
        self._principal = Principal("anonymous", scope)

    @property
    def mode(self) -> str:
        return f"no credentials are asked for; everybody may {self._principal.scope.name.lower()}"

    async def knows_somebody(self) -> bool:
        return False

    async def admit(self, request: HTTPConnection) -> Principal:
        return self._principal
