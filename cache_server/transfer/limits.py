"""How much of somebody else's directory or archive an import is willing to look at."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes are in bytes; each limit is the largest accepted value."""

    members: int = 500_000
    member_size: int = 32 << 30
    total_size: int = 2 << 40
    name_length: int = 1024
    name_depth: int = 24
    extension_size: int = 64 << 10
    # Unpacked bytes per packed byte of a `.tar.gz`, judged once `ratio_floor` bytes are out.
    ratio: int = 200
    ratio_floor: int = 64 << 20


DEFAULT_LIMITS = Limits()
