"""Conditional requests."""

from __future__ import annotations


def matches(header: str | None, etag: str) -> bool:
    """Whether `etag` (quoted) is among those of an If-Match or If-None-Match header; False without one."""
    if header is None:
        return False
    named = [part.strip().removeprefix("W/") for part in header.split(",")]
    return "*" in named or etag.removeprefix("W/") in named
