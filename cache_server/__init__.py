"""The NEFF cache: each graph compiled once across a fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cache_server.cache import NeffCache
    from cache_server.errors import CacheError, StoreError
    from cache_server.ir import digest_ir
    from cache_server.keys import KeyParts
    from cache_server.manifest import Manifest
    from cache_server.result import CacheResult, Outcome, Phase, Waiting
    from cache_server.settings import CacheSettings

__all__ = [
    "CacheError",
    "CacheResult",
    "CacheSettings",
    "KeyParts",
    "Manifest",
    "NeffCache",
    "Outcome",
    "Phase",
    "StoreError",
    "Waiting",
    "digest_ir",
]

_HOMES = {
    "CacheError": "errors",
    "CacheResult": "result",
    "CacheSettings": "settings",
    "KeyParts": "keys",
    "Manifest": "manifest",
    "NeffCache": "cache",
    "Outcome": "result",
    "Phase": "result",
    "StoreError": "errors",
    "Waiting": "result",
    "digest_ir": "ir",
}


def __getattr__(name: str) -> Any:
    # Commands that never touch the cache should not pay for importing it.
    from importlib import import_module

    try:
        home = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return getattr(import_module(f"{__name__}.{home}"), name)
