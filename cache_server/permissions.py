"""Who else may read and write the files of a store."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from cache_server.errors import CacheError


@dataclass(frozen=True, slots=True)
class Permissions:
    """Modes given to new files and directories, whatever the umask says: on a shared mount, intent counts."""

    file_mode: int
    dir_mode: int


POLICIES = {
    # The set-group-id bit makes new directories inherit the mount's group instead of the writer's.
    "group": Permissions(0o664, 0o2775),
    "private": Permissions(0o600, 0o700),
    "world-read": Permissions(0o644, 0o755),
}
PRIVATE = POLICIES["private"]


def permissions_named(policy: str) -> Permissions:
    """Raises CacheError for a policy that does not exist."""
    try:
        return POLICIES[policy]
    except KeyError:
        raise CacheError(
            f"no such permission policy: {policy!r}", hint=f"choose one of {', '.join(POLICIES)}"
        ) from None


def make_directories(directory: Path, mode: int) -> None:
    """Creates a directory and its missing ancestors, each with `mode` whatever the umask is. Raises OSError."""
    if not directory.parent.is_dir():
        make_directories(directory.parent, mode)
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        return
    with contextlib.suppress(PermissionError):  # some FUSE mounts have modes of their own
        directory.chmod(mode)


def refuse_unsafe(directory: Path, *, setting: str) -> None:
    """Raises CacheError when a default place could be written by anybody, or belongs to somebody else.

    A NEFF is executable code: whoever can write here can run code in every reader. A directory that does not exist
    yet is judged by its nearest ancestor.
    """
    place = directory
    while True:
        try:
            info = place.stat()
            break
        except (FileNotFoundError, NotADirectoryError):
            if place.parent == place:
                return
            place = place.parent
        except OSError:
            return  # what cannot be looked at cannot be used either; the first access says why
    hint = f"set `{setting}` to a directory that you own, or type `chmod o-w {place}`"
    if stat.S_IMODE(info.st_mode) & stat.S_IWOTH:
        raise CacheError(
            f"refusing to keep compiled code in {directory}: {place} can be written by anybody "
            f"(mode {stat.S_IMODE(info.st_mode):04o})",
            hint=hint,
        )
    if place == directory and info.st_uid not in (os.geteuid(), 0):
        raise CacheError(f"refusing to keep compiled code in {directory}: it belongs to user {info.st_uid}", hint=hint)
