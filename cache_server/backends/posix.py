"""A store in a directory: a local disk, or a mount that many hosts share."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from cache_server.backends.base import Content, Found, Incoming
from cache_server.backends.posixstream import FileContent, FileIncoming, claim, lock, open_regular
from cache_server.errors import StoreError
from cache_server.permissions import Permissions, make_directories

T = TypeVar("T")

_STAGING = "staging"
# A network file system answers so while another host replaces what this one had cached.
_PASSING = frozenset({errno.ESTALE, errno.EBUSY})
_ATTEMPTS = 3


class PosixBackend:
    """Objects as files below `root`, which is created at the first write.

    A file is written to `staging/`, flushed to disk, and then renamed or linked to its name, so nobody ever reads a
    part of one. `create` is a hard link, which fails atomically when the name exists on local file systems, NFS and
    Lustre alike. On a file system without hard links it falls back to a rename that does not exclude: the start-up
    probe of the leases finds that out. Names are flushed with the next journal commit: a power cut can lose an
    entry, never tear one. Without `durable` contents are not flushed either, for a tier whose loss costs little.
    """

    def __init__(self, root: Path, permissions: Permissions, *, durable: bool = True) -> None:
        self.root = root
        self.url = f"file://{root}"
        self._place = f"{root}/"  # a Path costs more than what is done with it
        self._permissions = permissions
        self._durable = durable

    def read(self, path: str, limit: int) -> bytes | None:
        return self._io("read", path, lambda: _read(self._place + path, limit))

    def write(self, path: str, data: bytes | memoryview) -> None:
        staged = self._staged(_fresh_name())
        try:
            self._io("write", staged, lambda: self._stage(staged, data))
            self._io("write", path, lambda: self._into_place(os.replace, staged, path))
        except BaseException:
            _drop(staged)
            raise

    def create(self, path: str, data: bytes) -> bool:
        with self.staged(data) as staged:
            try:
                return self.link(staged, path)
            except StoreError as error:
                cause = error.__cause__
                if not isinstance(cause, OSError) or cause.errno not in (errno.EPERM, errno.EOPNOTSUPP):
                    raise
            if (self.root / path).exists():
                return False
            self._io("write", path, lambda: self._into_place(os.replace, staged, path))
            return True

    def remove_if(self, path: str, expected: bytes) -> bool:
        # Nothing can look at a name and remove it in one step. So take it aside, look, and put it back if it was not
        # the one meant; for that moment readers miss, which costs them a second look.
        aside = f"{_STAGING}/{_fresh_name()}"
        if not self.move(path, aside):
            return False
        matched = self.read(aside, len(expected)) == expected
        if not matched:
            self.link(self._place + aside, path)
        self.unlink(aside)
        return matched

    def move(self, path: str, target: str) -> bool:
        source = self._place + path

        def attempt() -> bool:
            if not Path(source).exists():
                return False
            try:
                self._into_place(os.replace, source, target)
            except FileNotFoundError:
                return False
            return True

        return self._io("move", path, attempt)

    def walk(self, prefix: str) -> Iterator[str]:
        for directory, _, names in os.walk(self.root / prefix):
            for name in names:
                yield str((Path(directory) / name).relative_to(self.root))

    def scan(self, prefix: str) -> Iterator[Found]:
        directories = [self.root / prefix]
        while directories:
            directory = directories.pop()
            inner, found = self._io("list", str(directory), lambda: self._scan_one(directory))  # noqa: B023
            directories += inner
            yield from found

    def remove(self, found: Found) -> bool:
        def attempt() -> bool:
            path = self.root / found.path
            try:
                if self._found(found.path, path.lstat()).version != found.version:
                    return False
                path.unlink()
            except (FileNotFoundError, NotADirectoryError):
                return False
            return True

        return self._io("remove", found.path, attempt)

    def find(self, path: str) -> Found | None:
        def attempt() -> Found | None:
            try:
                info = os.lstat(self._place + path)
            except (FileNotFoundError, NotADirectoryError):
                return None
            return self._found(path, info) if stat.S_ISREG(info.st_mode) else None

        return self._io("look at", path, attempt)

    def open(self, path: str) -> Content | None:
        fd = self._io("read", path, lambda: open_regular(self._place + path))
        return None if fd is None else FileContent(fd, path, self._io)

    def receive(self, path: str, size: int, *, name: str = "") -> Incoming:
        staged = self._staged(name or _fresh_name())
        fd = self._io("write", staged, lambda: self._new_staged(staged))
        lock(fd)
        return self._incoming(fd, staged, path)

    def resume(self, path: str, size: int, *, name: str) -> tuple[Incoming, Content] | None:
        staged = self._staged(name)
        fd = self._io("write", staged, lambda: claim(staged))
        if fd is None:
            return None
        return self._incoming(fd, staged, path), FileContent(os.dup(fd), staged, self._io)

    def touch(self, path: str) -> bool:
        def attempt() -> bool:
            try:
                os.utime(self.root / path)
            except (FileNotFoundError, NotADirectoryError, PermissionError):
                return False  # another user's file can be replaced, but not touched
            return True

        return self._io("touch", path, attempt)

    def presigned(self, path: str, seconds: int) -> str | None:
        return None

    def _staged(self, name: str) -> str:
        return f"{self._place}{_STAGING}/{name}"

    def _incoming(self, fd: int, staged: str, path: str) -> FileIncoming:
        def into_place(complete: str) -> None:
            self._into_place(os.replace, complete, path)

        return FileIncoming(fd, staged, self._io, into_place, durable=self._durable)

    def _new_staged(self, staged: str) -> int:
        try:
            fd = _open_new(staged)
        except FileNotFoundError:
            make_directories(Path(staged).parent, self._permissions.dir_mode)
            fd = _open_new(staged)
        with contextlib.suppress(PermissionError):  # some FUSE mounts have modes of their own
            os.fchmod(fd, self._permissions.file_mode)
        return fd

    def _scan_one(self, directory: Path) -> tuple[list[Path], list[Found]]:
        inner, found = [], []
        try:
            children = list(os.scandir(directory))
        except (FileNotFoundError, NotADirectoryError):
            return [], []
        for child in children:
            with contextlib.suppress(FileNotFoundError):  # removed or renamed since it was listed
                if child.is_dir(follow_symlinks=False):
                    inner.append(Path(child))
                else:
                    path = child.path.removeprefix(self._place)
                    found.append(self._found(path, child.stat(follow_symlinks=False)))
        return inner, found

    def _found(self, path: str, info: os.stat_result) -> Found:
        wanted = self._permissions.file_mode & 0o444
        return Found(
            path=path,
            size=info.st_size,
            modified_at=info.st_mtime,
            version=f"{info.st_ino}-{info.st_mtime_ns}",
            readable_by_all=info.st_mode & wanted == wanted,
        )

    @contextlib.contextmanager
    def staged(self, data: bytes | memoryview) -> Iterator[str]:
        """A complete file with `data` outside every listed name; what is left of it goes away at the end."""
        staged = self._staged(_fresh_name())
        try:
            self._io("write", staged, lambda: self._stage(staged, data))
            yield staged
        finally:
            # The object is in place by now, or an error is on its way: a leftover must not replace either.
            _drop(staged)

    def link(self, staged: str, path: str) -> bool:
        """Gives a staged file the name `path` as well; False if the name is taken."""

        def attempt() -> bool:
            try:
                self._into_place(os.link, staged, path)
            except FileExistsError:
                # An NFS client repeats a request whose answer was lost, and is then told that the name exists,
                # though its own first request made it.
                return Path(staged).stat().st_nlink > 1
            return True

        return self._io("create", path, attempt)

    def unlink(self, path: str) -> bool:
        """Removes a file; False if it is not there."""

        def attempt() -> bool:
            try:
                (self.root / path).unlink()
            except FileNotFoundError:
                return False
            return True

        return self._io("remove", path, attempt)

    def names(self, path: str) -> list[str]:
        """The names in one directory; none if it does not exist."""

        def attempt() -> list[str]:
            try:
                return [entry.name for entry in (self.root / path).iterdir()]
            except (FileNotFoundError, NotADirectoryError):
                return []

        return self._io("list", path, attempt)

    def _stage(self, staged: str, data: bytes | memoryview) -> None:
        fd = self._new_staged(staged)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(fd, rest) :]
            if self._durable:
                os.fsync(fd)
        finally:
            os.close(fd)

    def _into_place(self, act: Callable[[str, str], None], source: str, path: str) -> None:
        target = self._place + path
        try:
            act(source, target)
        except FileNotFoundError:
            # Of the two names it is the target's directory that is missing; another writer may have made it by now.
            if not Path(source).exists():
                raise
            make_directories(Path(target).parent, self._permissions.dir_mode)
            act(source, target)

    def _io(self, verb: str, path: str, attempt: Callable[[], T]) -> T:
        for attempts_left in reversed(range(_ATTEMPTS)):
            try:
                return attempt()
            except OSError as error:
                if error.errno in _PASSING and attempts_left:
                    time.sleep(0.02)
                    continue
                raise StoreError(
                    f"cannot {verb} {path} in the cache at {self.url}: {error.strerror or error}",
                    hint=_remedy(error, self.root),
                ) from error
        raise AssertionError("unreachable")


def _read(path: str, limit: int) -> bytes | None:
    fd = open_regular(path)
    if fd is None:
        return None
    with os.fdopen(fd, "rb", buffering=0) as file:
        if os.fstat(fd).st_size > limit:
            return file.read(limit + 1)
        return file.readall()


def _open_new(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


def _drop(staged: str) -> None:
    with contextlib.suppress(OSError):
        Path(staged).unlink()


def _fresh_name() -> str:
    # Random, not host and pid: two containers on one mount can share both. Nothing depends on nobody guessing it, and
    # the system's own random numbers let other threads run, which costs more than the write.
    return f"{random.getrandbits(128):032x}"


def _remedy(error: OSError, root: Path) -> str | None:
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"give this user access to {root}, or choose another place with `NEURON_ENV_CACHE_URL`"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"free some room below {root}"
    return None
