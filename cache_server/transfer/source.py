"""What is imported: the files of a directory or of a tar archive, none of which is trusted."""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import stat
import tempfile
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from cache_server.errors import CacheError
from cache_server.store import LAYOUT
from cache_server.transfer.limits import DEFAULT_LIMITS, Limits
from cache_server.transfer.tar import walk_tar

_GZIP = b"\x1f\x8b"
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Member:
    """One file: its relative path with `/`, its size in bytes, its time of change in seconds since 1970.

    `refused` says why its content must not be used; it is empty for a file that may be.
    """

    name: str
    size: int = 0
    modified_at: float = 0.0
    refused: str = ""


class Source(Protocol):
    """A tree of files. `members` are in no order and have distinct names; `read` is safe from several threads."""

    name: str
    members: tuple[Member, ...]

    def read(self, member: Member) -> bytes:
        """The content. Raises CacheError if the file cannot be read, or is not as long as it was."""
        ...


@contextlib.contextmanager
def open_source(path: Path, limits: Limits = DEFAULT_LIMITS) -> Iterator[Source]:
    """A directory, or a tar archive that may be compressed with gzip. Raises CacheError for anything else."""
    try:
        if path.is_dir():
            yield _directory(path.absolute(), limits)
            return
        with path.open("rb") as file:
            packed = file.read(len(_GZIP)) == _GZIP
            file.seek(0)
            if not packed:
                yield TarSource(str(path), file, limits)
                return
            with tempfile.TemporaryFile() as unpacked:
                _unpack(path, file, unpacked, limits)
                yield TarSource(str(path), unpacked, limits)
    except OSError as error:
        raise CacheError(f"cannot read {path}: {error.strerror or error}") from error


def _directory(path: Path, limits: Limits) -> DirectorySource:
    """The last names of a path can say what lies below it, so they are kept."""
    if path.name.startswith("MODULE_") and path.parent.name.startswith("neuronxcc-"):
        return DirectorySource(path.parent.parent, limits, inside=f"{path.parent.name}/{path.name}")
    if path.name == LAYOUT or path.name.startswith("neuronxcc-"):
        return DirectorySource(path.parent, limits, inside=path.name)
    return DirectorySource(path, limits)


class DirectorySource:
    """The regular files below a directory. Links are refused, wherever they lead."""

    def __init__(self, root: Path, limits: Limits = DEFAULT_LIMITS, *, inside: str = "") -> None:
        """With `inside`, only what is below that directory in `root`; names begin with it nevertheless."""
        self.name = str(root / inside)
        self._root = root
        self._limits = limits
        self.members = tuple(self._walk(inside))

    def read(self, member: Member) -> bytes:
        try:
            fd = os.open(self._root / member.name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(fd, "rb", buffering=0) as file:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise CacheError(f"{member.name} is no regular file")
                data = _read_exactly(file, member.size)
                if data is None or file.read(1):
                    raise CacheError(f"{member.name} changed while it was read")
                return data
        except OSError as error:
            raise CacheError(f"cannot read {member.name}: {error.strerror or error}") from error

    def _walk(self, inside: str) -> Iterator[Member]:
        count = 0
        directories = [inside]
        while directories:
            inside = directories.pop()
            try:
                children = sorted(os.scandir(self._root / inside), key=lambda child: child.name)
            except OSError as error:
                yield Member(inside or ".", refused=f"cannot be listed: {error.strerror or error}")
                continue
            for child in children:
                count += 1
                if count > self._limits.members:
                    yield Member(inside or ".", refused=f"more than {self._limits.members} files")
                    return
                name = f"{inside}/{child.name}" if inside else child.name
                try:
                    info = child.stat(follow_symlinks=False)
                except OSError:
                    continue  # removed since it was listed
                if stat.S_ISDIR(info.st_mode):
                    if name.count("/") < self._limits.name_depth:
                        directories.append(name)
                    continue
                yield Member(name, info.st_size, info.st_mtime, self._objection(name, info))

    def _objection(self, name: str, info: os.stat_result) -> str:
        if stat.S_ISLNK(info.st_mode):
            return "a symbolic link"
        if not stat.S_ISREG(info.st_mode):
            return "no regular file"
        if not name.isprintable():
            return "its name holds a character that no name may hold"
        return "" if info.st_size <= self._limits.member_size else f"longer than {self._limits.member_size} bytes"


class TarSource:
    """The members of an uncompressed tar archive, found in one pass and read where they lie."""

    def __init__(self, name: str, file: IO[bytes], limits: Limits = DEFAULT_LIMITS) -> None:
        self.name = name
        self._file = file
        self._lock = threading.Lock()
        self._offsets: dict[str, int] = {}
        self.members = tuple(self._walk(limits))

    def read(self, member: Member) -> bytes:
        with self._lock:
            try:
                self._file.seek(self._offsets[member.name])
                data = _read_exactly(self._file, member.size)
            except OSError as error:
                raise CacheError(f"cannot read {member.name} in {self.name}: {error.strerror or error}") from error
        if data is None:
            raise CacheError(f"{self.name} ends in the middle of {member.name}")
        return data

    def _walk(self, limits: Limits) -> Iterator[Member]:
        for found in walk_tar(self._file, limits):
            refused = found.refused or ("appears twice" if found.name in self._offsets else "")
            if not refused:
                self._offsets[found.name] = found.offset
            yield Member(found.name, found.size, found.modified_at, refused)


def _read_exactly(file: IO[bytes], size: int) -> bytes | None:
    """`size` bytes, or None if there are fewer. Reserves memory as it comes, not as a header promises."""
    pieces, left = [], size
    while left:
        piece = file.read(min(left, 64 * _PIECE))
        if not piece:
            return None
        pieces.append(piece)
        left -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _unpack(path: Path, packed: IO[bytes], unpacked: IO[bytes], limits: Limits) -> None:
    """Into a nameless temporary file: members have to be read in another order than they come in."""
    size = os.fstat(packed.fileno()).st_size
    bound = min(limits.total_size, max(limits.ratio_floor, size * limits.ratio))
    written = 0
    try:
        with gzip.GzipFile(fileobj=packed) as stream:
            while piece := stream.read(_PIECE):
                written += len(piece)
                if written > bound:
                    raise CacheError(f"{path} unpacks to more than {bound} bytes, which no cache of its size does")
                unpacked.write(piece)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise CacheError(f"{path} is damaged: {error}", hint="copy it again") from error
    except OSError as error:
        place = tempfile.gettempdir()
        room = shutil.disk_usage(place).free
        raise CacheError(
            f"cannot unpack {path} into {place}, where {room} bytes are free: {error.strerror or error}",
            hint="unpack it yourself and import the directory, or set `TMPDIR` to a larger disk",
        ) from error
