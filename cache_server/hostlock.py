"""One process of this host at a time for a key, before the fleet is asked."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from cache_server.permissions import make_directories

if TYPE_CHECKING:
    from filelock import FileLock

log = logging.getLogger("neuron_env.cache")


class HostLock:
    """An flock that the kernel drops when its holder dies, in a directory only this user can enter.

    Where the directory cannot be made or the file system has no flock, `try_acquire` says yes: the lock saves the
    fleet's store some traffic, and the lease is what excludes.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._path = directory / f"{name}.lock"
        self._lock: FileLock | None = None

    def try_acquire(self) -> bool:
        """Takes the lock unless somebody has it; never waits."""
        from filelock import FileLock, Timeout

        try:
            prepare_private(self._path.parent)
            if self._lock is None:
                self._lock = FileLock(self._path, mode=0o600, thread_local=False, fallback_to_soft=False)
            self._lock.acquire(timeout=0)
        except Timeout:
            return False
        except (OSError, NotImplementedError) as error:
            log.debug("no host lock at %s: %s", self._path, error)
            self._lock = None
        return True

    def release(self) -> None:
        """Gives the lock back; does nothing if it is not held."""
        if self._lock is not None and self._lock.is_locked:
            self._lock.release()


def prepare_private(directory: Path) -> None:
    """Makes a directory that only this user can enter. Raises OSError, also for one that others can."""
    make_directories(directory, 0o700)
    info = os.lstat(directory)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
        raise PermissionError(f"{directory} is not a private directory of this user")
