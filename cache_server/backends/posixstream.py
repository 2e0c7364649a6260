"""Files read and written piece by piece, for content that does not fit into memory."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_PIECE = 1 << 20
# Runs one attempt, and turns OSErrors into StoreErrors: `PosixBackend._io`.
Guard = Callable[[str, str, Callable[[], T]], T]


class FileContent:
    """An open file. Its name may go meanwhile: what is read stays that of the file that was opened."""

    piece = _PIECE

    def __init__(self, fd: int, path: str, guard: Guard[bytes]) -> None:
        self._fd = fd
        self._path = path
        self._guard = guard
        self.size = os.fstat(fd).st_size

    def read(self, start: int, size: int) -> bytes:
        return self._guard("read", self._path, lambda: self._read(start, size))

    def _read(self, start: int, size: int) -> bytes:
        data = os.pread(self._fd, size, start)
        while len(data) < size:
            more = os.pread(self._fd, size - len(data), start + len(data))
            if not more:
                raise OSError(errno.EIO, "the file ends early")
            data += more
        return data

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class FileIncoming:
    """A file in `staging/`, locked by whoever appends to it.

    The lock keeps a second process on the same host, or on a file system that shares locks, from changing bytes
    whose digest the first one has already taken. It goes with the descriptor, so a killed process leaves none.
    """

    def __init__(
        self, fd: int, staged: str, guard: Guard[None], into_place: Callable[[str], None], *, durable: bool
    ) -> None:
        self._fd = fd
        self._staged = staged
        self._guard = guard
        self._into_place = into_place
        self._durable = durable
        self.offset = os.fstat(fd).st_size

    def append(self, data: bytes | memoryview) -> None:
        self._guard("write", self._staged, lambda: self._append(memoryview(data)))

    def _append(self, rest: memoryview) -> None:
        # On a second attempt the first one's bytes are written again, to the same place.
        at = self.offset
        while rest:
            written = os.pwrite(self._fd, rest, at)
            at += written
            rest = rest[written:]
        self.offset = at

    def finish(self) -> None:
        def attempt() -> None:
            os.ftruncate(self._fd, self.offset)  # a failed append may have left more than it told
            if self._durable:
                os.fsync(self._fd)
            self._into_place(self._staged)

        self._guard("write", self._staged, attempt)
        self._close()

    def abort(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):  # a collector may have been here
                Path(self._staged).unlink()
            self._close()

    def suspend(self) -> bool:
        if self._fd < 0:
            return False
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, self.offset)
        self._close()
        return True

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def open_regular(path: str | Path) -> int | None:
    """A descriptor to read a file with; None if there is none. Raises OSError for what is not a plain file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "not a regular file")
    return fd


def claim(path: str) -> int | None:
    """A locked descriptor of a staged file; None if it is gone or in somebody's hand."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        # Between the opening and the lock it may have been finished: it is then an object, and not to be written to.
        if lock(fd) and os.fstat(fd).st_ino == os.lstat(path).st_ino:
            return fd
    except FileNotFoundError:
        pass
    os.close(fd)
    return None


def lock(fd: int) -> bool:
    """True unless somebody else holds the file's lock."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        # File systems without locks: there one has to do without, as every other program does.
        return error.errno in (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
    return True
