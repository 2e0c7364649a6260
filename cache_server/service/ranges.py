"""Which bytes of an object a request wants, and whether it has them already (RFC 9110)."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ONE_RANGE = re.compile(r"bytes=\s*(\d{0,19})-(\d{0,19})\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Span:
    """The bytes from `start` up to, not including, `stop`."""

    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


def wanted(header: str | None, if_range: str | None, *, size: int, etag: str) -> Span | None:
    """The part of an object of `size` bytes that a request asks for; None for all of it.

    Several ranges, other units and what cannot be understood mean all of it, as does an If-Range that names another
    version. Raises ValueError where the range holds no byte of the object.
    """
    if header is None or (if_range is not None and if_range.strip() != etag):
        return None
    match = _ONE_RANGE.fullmatch(header)
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    if not first:
        start, stop = max(0, size - int(last)), size
        satisfiable = int(last) > 0 and size > 0
    else:
        start, stop = int(first), size if not last else min(int(last) + 1, size)
        if last and int(last) < start:
            return None  # no range at all, says the RFC, rather than an empty one
        satisfiable = start < size
    if not satisfiable:
        raise ValueError(f"{header.strip()} holds none of the {size} bytes")
    return Span(start, stop)


def has_already(if_none_match: str | None, etag: str) -> bool:
    """Whether the sender has the version `etag`."""
    if if_none_match is None:
        return False
    named = {name.strip().removeprefix("W/") for name in if_none_match.split(",")}
    return etag in named or "*" in named
