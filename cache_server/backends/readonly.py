"""A store that is looked at and never written to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from cache_server.backends.base import Backend, Content, Found, Incoming
from cache_server.errors import StoreError


class ReadOnlyBackend:
    """Another backend's objects; every change raises StoreError before it reaches the place."""

    def __init__(self, inner: Backend) -> None:
        self.url = inner.url
        self._inner = inner

    def read(self, path: str, limit: int) -> bytes | None:
        return self._inner.read(path, limit)

    def walk(self, prefix: str) -> Iterator[str]:
        return self._inner.walk(prefix)

    def scan(self, prefix: str) -> Iterator[Found]:
        return self._inner.scan(prefix)

    def find(self, path: str) -> Found | None:
        return self._inner.find(path)

    def open(self, path: str) -> Content | None:
        return self._inner.open(path)

    def presigned(self, path: str, seconds: int) -> str | None:
        return self._inner.presigned(path, seconds)

    def write(self, path: str, data: bytes | memoryview) -> None:
        self._refuse()

    def create(self, path: str, data: bytes) -> bool:
        self._refuse()

    def remove_if(self, path: str, expected: bytes) -> bool:
        self._refuse()

    def move(self, path: str, target: str) -> bool:
        self._refuse()

    def receive(self, path: str, size: int, *, name: str = "") -> Incoming:
        self._refuse()

    def resume(self, path: str, size: int, *, name: str) -> tuple[Incoming, Content] | None:
        self._refuse()

    def touch(self, path: str) -> bool:
        self._refuse()

    def remove(self, found: Found) -> bool:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise StoreError(f"the cache at {self.url} is only read here")
