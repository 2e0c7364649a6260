"""Where a NEFF's bytes come from: memory, a path or an open file, all readable more than once."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from .errors import NeffAccessError
from .limits import MIB

CHUNK = 128 << 10
# Up to here a file is read in one go: a consistent snapshot, and faster than seeking about in it.
_SNAPSHOT_SIZE = 4 * MIB


class Source(Protocol):
    """A run of bytes that can be read from the start as often as needed."""

    @property
    def size(self) -> int: ...

    def head(self, size: int) -> bytes:
        """The first `size` bytes, or as many as there are."""
        ...

    def chunks(self, start: int) -> Iterator[bytes | memoryview]:
        """The bytes from `start` on, in pieces of at most CHUNK bytes."""
        ...


class MemorySource:
    """Bytes that are already here."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data).cast("B")

    @property
    def size(self) -> int:
        return len(self._data)

    def head(self, size: int) -> bytes:
        return bytes(self._data[:size])

    def chunks(self, start: int) -> Iterator[memoryview]:
        for at in range(start, len(self._data), CHUNK):
            yield self._data[at : at + CHUNK]


class FileSource:
    """A file too large to hold, opened anew for each pass; a change between two passes is an error."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with _reporting(path), path.open("rb") as file:
            self._identity = _identity(file)
        self._size = self._identity[2]

    @property
    def size(self) -> int:
        return self._size

    def head(self, size: int) -> bytes:
        return b"".join(bytes(chunk) for chunk in self._pieces(0, size))

    def chunks(self, start: int) -> Iterator[bytes]:
        return self._pieces(start, self._size - start)

    def _pieces(self, start: int, size: int) -> Iterator[bytes]:
        with _reporting(self._path), self._path.open("rb") as file:
            if _identity(file) != self._identity:
                raise NeffAccessError("file", f"`{self._path}` changed while it was being read", hint="read it again")
            file.seek(start)
            left = min(size, self._size - start)
            while left > 0 and (chunk := file.read(min(CHUNK, left))):
                left -= len(chunk)
                yield chunk


class StreamSource:
    """A seekable open file, from its present position to its end. It must stay open as long as the NEFF is
    used.
    """

    def __init__(self, file: BinaryIO) -> None:
        if not file.seekable():
            raise NeffAccessError(
                "file",
                "the open file cannot seek, and a NEFF is read more than once",
                hint="read the pipe or socket to its end and pass the bytes",
            )
        self._file = file
        self._start = file.tell()
        self._size = max(0, file.seek(0, io.SEEK_END) - self._start)

    @property
    def size(self) -> int:
        return self._size

    def head(self, size: int) -> bytes:
        self._file.seek(self._start)
        return self._file.read(size)

    def chunks(self, start: int) -> Iterator[bytes]:
        # The position is set for each piece: two passes may be under way at once.
        for at in range(start, self._size, CHUNK):
            self._file.seek(self._start + at)
            yield self._file.read(min(CHUNK, self._size - at))


NeffSource = bytes | bytearray | memoryview | str | Path | BinaryIO


def open_source(source: NeffSource) -> Source:
    """Raises NeffAccessError where the bytes cannot be reached."""
    if isinstance(source, bytes | bytearray | memoryview):
        return MemorySource(bytes(source) if isinstance(source, bytearray) else source)
    if isinstance(source, str | Path):
        return _open_path(Path(source))
    return StreamSource(source)


def _open_path(path: Path) -> Source:
    with _reporting(path):
        status = path.stat()
        # Opening a FIFO would wait for a writer, and a device need not end.
        if not stat.S_ISREG(status.st_mode):
            raise NeffAccessError("file", f"`{path}` is not a regular file", hint="give the path of a .neff file")
        if status.st_size <= _SNAPSHOT_SIZE:
            with path.open("rb") as file:
                data = file.read(_SNAPSHOT_SIZE + 1)
            if len(data) <= _SNAPSHOT_SIZE:
                return MemorySource(data)
    return FileSource(path)


def _identity(file: BinaryIO) -> tuple[int, int, int, int]:
    status = os.fstat(file.fileno())
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


@contextmanager
def _reporting(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise NeffAccessError(
            "file", f"cannot read `{path}`: {reason}", hint="check the path and its permissions"
        ) from error
