"""A store that lives and ends with this process: fsspec's `memory://`, for tests and trials."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

from cache_server.backends.base import Content, Found, Incoming
from cache_server.errors import StoreError

# fsspec keeps one memory file system a process, so one lock guards what all of its users do in two steps.
_LOCK = threading.RLock()
_PIECE = 1 << 20


class MemoryBackend:
    """Objects in fsspec's memory file system below `url`. Excludes between threads; no other process sees it."""

    def __init__(self, url: str) -> None:
        import fsspec

        self.url = url.rstrip("/")
        self._fs, self._root = fsspec.core.url_to_fs(self.url)

    def read(self, path: str, limit: int) -> bytes | None:
        with _LOCK:
            try:
                data: bytes = self._fs.cat_file(self._at(path))
            except FileNotFoundError:
                return None
        return data[: limit + 1]

    def write(self, path: str, data: bytes | memoryview) -> None:
        with _LOCK:
            self._fs.pipe_file(self._at(path), bytes(data))

    def create(self, path: str, data: bytes) -> bool:
        with _LOCK:
            if self._fs.exists(self._at(path)):
                return False
            self._fs.pipe_file(self._at(path), data)
            return True

    def remove_if(self, path: str, expected: bytes) -> bool:
        with _LOCK:
            if self.read(path, len(expected)) != expected:
                return False
            self._fs.rm_file(self._at(path))
            return True

    def move(self, path: str, target: str) -> bool:
        with _LOCK:
            if not self._fs.exists(self._at(path)):
                return False
            self._fs.mv(self._at(path), self._at(target))
            return True

    def walk(self, prefix: str) -> Iterator[str]:
        with _LOCK:
            found = list(self._fs.find(self._at(prefix)))
        for name in found:
            yield name.removeprefix(self._root).lstrip("/")

    def scan(self, prefix: str) -> Iterator[Found]:
        for path in self.walk(prefix):
            if (found := self._found(path)) is not None:
                yield found

    def remove(self, found: Found) -> bool:
        with _LOCK:
            if self._found(found.path) != found:
                return False
            self._fs.rm_file(self._at(found.path))
            return True

    def find(self, path: str) -> Found | None:
        return self._found(path)

    def open(self, path: str) -> Content | None:
        data = self.read(path, sys.maxsize - 1)
        return None if data is None else _MemoryContent(data)

    def receive(self, path: str, size: int, *, name: str = "") -> Incoming:
        return _MemoryIncoming(self, path)

    def resume(self, path: str, size: int, *, name: str) -> tuple[Incoming, Content] | None:
        return None  # what is not in place yet ends with whoever holds it

    def touch(self, path: str) -> bool:
        with _LOCK:
            data = self.read(path, sys.maxsize - 1)
            if data is None:
                return False
            self.write(path, data)
            return True

    def presigned(self, path: str, seconds: int) -> str | None:
        return None

    def _found(self, path: str) -> Found | None:
        with _LOCK:
            try:
                modified = self._fs.modified(self._at(path))
                size = self._fs.size(self._at(path))
            except FileNotFoundError:
                return None
        return Found(path, size, modified.timestamp(), modified.isoformat())

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"


class _MemoryContent:
    piece = _PIECE

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self._data = data

    def read(self, start: int, size: int) -> bytes:
        return self._data[start : start + size]

    def close(self) -> None:
        self._data = b""


class _MemoryIncoming:
    def __init__(self, backend: MemoryBackend, path: str) -> None:
        self._backend = backend
        self._path = path
        self._data: bytearray | None = bytearray()

    @property
    def offset(self) -> int:
        return len(self._held())

    def append(self, data: bytes | memoryview) -> None:
        self._held().extend(data)

    def finish(self) -> None:
        self._backend.write(self._path, bytes(self._held()))
        self._data = None

    def abort(self) -> None:
        self._data = None

    def suspend(self) -> bool:
        self._data = None
        return False

    def _held(self) -> bytearray:
        if self._data is None:
            raise StoreError(f"the upload of {self._path} to {self._backend.url} has ended")
        return self._data
