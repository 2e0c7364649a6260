"""Sizes and durations on the command line: `10GiB`, `7d`."""

from __future__ import annotations

import click

from cache_server.quantities import parse_duration, parse_size


def size(text: str) -> int:
    """An option's type: bytes, as `1000`, `512K`, `10GiB` (powers of 1024) or `10GB` (of 1000)."""
    try:
        return parse_size(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def duration(text: str) -> float:
    """An option's type: seconds, as `90`, `90s`, `15m`, `12h`, `7d` or `2w`."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def duration_text(seconds: float) -> str:
    """A time span as people read it: `0.40 s`, `12 s`, `5.0 min`, `3.2 h`, `12 d`."""
    if seconds < 10:
        return f"{max(seconds, 0.0):.2f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172800 else f"{seconds / 86400:.0f} d"


def count_text(count: int, noun: str, plural: str = "") -> str:
    """`1 entry`, `2 entries`: `plural` where it is not the noun with an s."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
