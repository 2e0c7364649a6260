"""Work whose errors nobody waits for."""

from __future__ import annotations

import logging
from collections.abc import Awaitable

from cache_server.errors import CacheError

log = logging.getLogger("neuron_env.cache.server")


async def logged(name: str, work: Awaitable[object]) -> None:
    """Waits for `work`; what goes wrong becomes a line in the log."""
    try:
        await work
    except CacheError as error:
        log.warning("%s failed: %s", name, error)
    except Exception:
        log.exception("%s failed", name)
