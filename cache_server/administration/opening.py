"""From a URL to whoever looks after what is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cache_server.administration.base import Administration
from cache_server.storage import is_service, open_storage

if TYPE_CHECKING:
    from cache_server.trust.signatures import Trust


def open_administration(
    url: str, *, namespace: str = "default", permissions: str = "group", trust: Trust | None = None
) -> Administration:
    """Looks after the store at `url` itself, or through the service there. Touches nothing yet.

    Raises CacheError for a URL that cannot be a store. `permissions` and `trust` are for stores without a service,
    which has its own.
    """
    if is_service(url):
        from cache_server.remote.administration import RemoteAdministration
        from cache_server.remote.options import RemoteOptions

        return RemoteAdministration(RemoteOptions.from_environment(url), namespace)
    from cache_server.administration.local import LocalAdministration

    return LocalAdministration(open_storage(url, namespace=namespace, permissions=permissions, trust=trust))
