"""How many processors and how much memory this host, or the container this process is in, has to give."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path("/")


def processors(root: Path = _ROOT) -> int:
    """The processors this process may use, by its affinity and its control group's quota; at least 1."""
    allowed = float(len(os.sched_getaffinity(0)))
    for directory in _groups(root, "cpu"):
        quota = _words(directory / "cpu.max")  # version 2: "200000 100000", or "max 100000"
        if not quota:
            quota = [*_words(directory / "cpu.cfs_quota_us"), *_words(directory / "cpu.cfs_period_us")]
        if len(quota) == 2 and quota[0].isdigit() and quota[1].isdigit() and int(quota[1]):
            allowed = min(allowed, int(quota[0]) / int(quota[1]))
    return max(1, int(allowed))


def available_memory(root: Path = _ROOT) -> int | None:
    """Bytes that can still be had without swapping or an out-of-memory kill; None where the system does not tell."""
    amounts = [amount for amount in (_meminfo(root),) if amount is not None]
    for directory in _groups(root, "memory"):
        for limit_file, usage_file, cache_field in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            limit, usage = _words(directory / limit_file), _words(directory / usage_file)
            # Version 1 has no word for "no limit": it shows the largest number of pages.
            if len(limit) == len(usage) == 1 and limit[0].isdigit() and usage[0].isdigit() and int(limit[0]) < 1 << 60:
                reclaimable = _field(directory / "memory.stat", cache_field) or 0
                amounts.append(max(0, int(limit[0]) - max(0, int(usage[0]) - reclaimable)))
    return min(amounts, default=None)


def _meminfo(root: Path) -> int | None:
    kib = _field(root / "proc/meminfo", "MemAvailable:")
    return None if kib is None else kib * 1024


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The control groups that bind this process: its own and those above it."""
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = [*line.split(":", 2), "", "", ""][:3]
        if controllers == "":
            top = root / "sys/fs/cgroup"
        elif controller in controllers.split(","):
            top = root / "sys/fs/cgroup" / controller
        else:
            continue
        own = top / path.lstrip("/")
        if ".." in own.parts:  # outside this container's view
            own = top
        for directory in (own, *own.parents):
            yield directory
            if directory == top:
                break


def _field(path: Path, name: str) -> int | None:
    for line in _lines(path):
        words = line.split()
        if len(words) >= 2 and words[0] == name and words[1].isdigit():
            return int(words[1])
    return None


def _words(path: Path) -> list[str]:
    return " ".join(_lines(path)).split()


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []
