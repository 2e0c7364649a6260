"""The disk below a store that is a directory."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

_LARGEST_RESERVE = 1 << 30
_FILES = 64  # that must fit beside what is promised: an object, its directories, a lease record


@dataclass(frozen=True, slots=True)
class DiskUse:
    """Bytes of a file system: in all, what this user may still write, a block, and what unfinished writes have taken.

    `files` is False where no more files can be made, whatever room there is.
    """

    total: int
    free: int
    block: int = 1
    unfinished: int = 0
    files: bool = True


class Disk(Protocol):
    """What is known of the disk, if there is one."""

    def use(self) -> DiskUse | None:
        """None where that cannot be said, and nothing is refused for it. May block."""
        ...


class DirectoryDisk:
    """The file system of a store's directory, which may not exist yet; writers have their files in `staging` below."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def use(self) -> DiskUse | None:
        for place in (self._directory, *self._directory.parents):
            try:
                seen = os.statvfs(place)
            except FileNotFoundError:
                continue
            except OSError:
                return None
            files = seen.f_files == 0 or seen.f_favail > _FILES
            free = seen.f_bavail * seen.f_frsize
            return DiskUse(seen.f_blocks * seen.f_frsize, free, seen.f_frsize, self._unfinished(), files)
        return None

    def _unfinished(self) -> int:
        total = 0
        with contextlib.suppress(OSError), os.scandir(self._directory / "staging") as children:
            for child in children:
                with contextlib.suppress(OSError):
                    total += child.stat(follow_symlinks=False).st_blocks * 512
        return total


class NoDisk:
    """A bucket has room as long as somebody pays."""

    def use(self) -> DiskUse | None:
        return None


def reserve_of(total: int, keep_free: int | None) -> int:
    """What stays free on a disk of `total` bytes, for manifests, lease records and whoever else writes there."""
    return min(total // 50, _LARGEST_RESERVE) if keep_free is None else keep_free
