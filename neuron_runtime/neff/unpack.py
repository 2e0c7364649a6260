"""Unpack a NEFF into a directory."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from .errors import NeffAccessError
from .limits import DEFAULT_LIMITS, NeffLimits
from .reader import Neff, read_neff
from .source import NeffSource
from .stream import ContentStream
from .tar import Member


def unpack_neff(source: NeffSource, directory: str | Path, limits: NeffLimits = DEFAULT_LIMITS) -> Neff:
    """Write each member below `directory`, which is made, or is there and empty. Files get mode 0644.

    The NEFF is checked whole before the first byte is written, and what was written is removed again where
    the disk fails. Raises NeffError for a bad NEFF, and NeffAccessError for a directory that holds anything and
    for a failing disk.
    """
    neff = read_neff(source, limits)
    root = Path(directory)
    made = not root.exists()
    try:
        root.mkdir(parents=True, exist_ok=True)
        empty = next(root.iterdir(), None) is None
    except OSError as error:
        raise _unwritable(root, error) from error
    if not empty:
        raise NeffAccessError(
            "directory", f"`{root}` is not empty, and nothing is overwritten", hint="give a new directory"
        )
    try:
        for member, stream in neff.contents():
            _write(root / member.name, stream, member.size)
    except BaseException as error:
        _remove(root, neff.members, made)
        if isinstance(error, OSError):
            raise _unwritable(root, error) from error
        raise
    return neff


def _write(path: Path, stream: ContentStream, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # No file or link that appeared in the directory meanwhile is followed or overwritten.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o644), "wb") as file:
        os.fchmod(file.fileno(), 0o644)
        for piece in stream.pieces(size):
            file.write(piece)


def _remove(root: Path, members: tuple[Member, ...], made: bool) -> None:
    for top in {member.name.partition("/")[0] for member in members}:
        path = root / top
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    if made:
        with contextlib.suppress(OSError):
            root.rmdir()


def _unwritable(root: Path, error: OSError) -> NeffAccessError:
    return NeffAccessError(
        "directory",
        f"cannot unpack into `{root}`: {error.strerror or error}",
        hint="give a new directory on a disk with room that you may write to",
    )
