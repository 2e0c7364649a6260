"""How much of a hostile file the reader is willing to look at."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class NeffLimits:
    """Bounds on what is unpacked. Sizes are in bytes; each limit is the largest accepted value.

    The defaults leave an order of magnitude above the largest NEFFs reported in the field, and still refuse a
    gzip or tar bomb within its first megabytes.
    """

    members: int = 16_384
    member_size: int = 4 * GIB
    unpacked_size: int = 32 * GIB
    name_length: int = 512
    name_depth: int = 16
    manifest_size: int = 1 * MIB
    extension_size: int = 8 * KIB
    padding_size: int = 1 * MIB
    # Unpacked bytes per packed byte, judged once `ratio_floor` bytes are out: small files of zeros are
    # honest.
    ratio: int = 200
    ratio_floor: int = 8 * MIB
    # Contents kept from the first pass, so that loading a NEFF of usual size unpacks it once.
    kept_size: int = 8 * MIB


DEFAULT_LIMITS = NeffLimits()
