"""Sizes and durations as people write them: `10GiB`, `7d`."""

from __future__ import annotations

import re

_NUMBER = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([A-Za-z]*)")
_SIZES = {"": 1, "b": 1} | {
    name: base**power
    for power, letter in enumerate("kmgtp", 1)
    for name, base in ((letter, 1024), (f"{letter}ib", 1024), (f"{letter}b", 1000))
}
_DURATIONS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def parse_size(text: str) -> int:
    """Bytes, from `1000`, `512K`, `10GiB` (powers of 1024) or `10GB` (of 1000). Raises ValueError."""
    amount = _parse(text, _SIZES)
    if amount is None:
        raise ValueError(f"{text!r} is not a size; write it like 500M or 10GiB")
    return int(amount)


def parse_duration(text: str) -> float:
    """Seconds, from `90`, `90s`, `15m`, `12h`, `7d` or `2w`. Raises ValueError."""
    amount = _parse(text, _DURATIONS)
    if amount is None:
        raise ValueError(f"{text!r} is not a duration; write it like 12h or 7d")
    return amount


def _parse(text: str, units: dict[str, int]) -> float | None:
    match = _NUMBER.fullmatch(text.strip())
    unit = units.get(match[2].lower()) if match else None
    return float(match[1]) * unit if match and unit else None
