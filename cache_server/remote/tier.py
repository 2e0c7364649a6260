"""A cache service as the shared tier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cache_server.remote.coordinator import RemoteCoordinator
from cache_server.remote.options import RemoteOptions
from cache_server.remote.service import Service
from cache_server.remote.store import RemoteStore
from cache_server.tier import Trouble

if TYPE_CHECKING:
    from cache_server.trust.signatures import Trust


@dataclass(frozen=True, slots=True)
class RemoteTier:
    """Entries in `store`, leases by the same service."""

    service: Service
    store: RemoteStore

    @classmethod
    def open(
        cls, options: RemoteOptions, namespace: str = "default", trust: Trust | None = None, *, uses: bool = True
    ) -> RemoteTier:
        """Touches nothing yet: a service that is down shows at the first use, and is used once it is there."""
        service = Service.at(options)
        return cls(service, RemoteStore(service, namespace, trust, uses=uses))

    def coordinator(self, lease_seconds: float) -> RemoteCoordinator:
        return RemoteCoordinator(self.service, self.store.namespace)

    def trouble(self) -> Trouble:
        breaker = self.service.breaker
        return Trouble(self.service.persistence.budget.spent, breaker.opened, breaker.is_open)
