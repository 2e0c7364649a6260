"""Where the bytes of a store live: one small interface, one module a kind of place."""

from __future__ import annotations

from cache_server.backends.base import Backend, Content, Found, Incoming, pieces

__all__ = ["Backend", "Content", "Found", "Incoming", "pieces"]
