"""Every route there is, one module a subject."""

from __future__ import annotations

from cache_server.service.route import Route
from cache_server.service.routes import administration, blobs, dashboard, entries, jobs, leases, operations, plain


def all_routes() -> list[Route]:
    """The routes of the service; no two patterns take the same path, so what is asked for most comes first."""
    modules = (blobs, entries, leases, jobs, operations, administration, dashboard, plain)
    return [route for module in modules for route in module.ROUTES]
