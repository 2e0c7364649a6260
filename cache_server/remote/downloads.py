"""Blobs from a service: continued where a connection broke, in parallel ranges where they are large."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

from cache_server.errors import StoreError, UnavailableError
from cache_server.remote.connection import Stream
from cache_server.remote.service import Service

LARGE = 32 << 20  # bytes from which on a blob comes in ranges
_PART = 16 << 20
_STREAMS = 4


class Download:
    """One blob of `size` bytes at `path` below /v1. What is read is not verified yet.

    `limits` are the size from which on there are ranges, and the size of one.
    """

    def __init__(self, service: Service, path: str, size: int, *, limits: tuple[int, int] = (LARGE, _PART)) -> None:
        self._service = service
        self._path = path
        self._size = size
        self._large, self._part = limits

    def read(self) -> bytearray | None:
        """The content; None if there is none, or it has another size. Raises StoreError."""
        data = bytearray(self._size)
        view = memoryview(data)
        if self._size < self._large:
            return data if self._fetch(view, 0, self._size) else None
        starts = range(0, self._size, self._part)
        with ThreadPoolExecutor(_STREAMS, thread_name_prefix="neuron-env-blob") as pool:
            # Each thread works within the effort of whoever asked.
            parts = [
                pool.submit(copy_context().run, self._fetch, view, start, min(start + self._part, self._size))
                for start in starts
            ]
            try:
                return data if all(part.result() for part in parts) else None
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def _fetch(self, view: memoryview, start: int, end: int) -> bool:
        return fetch_part(self._service, self._path, view[start:end], start, self._size)


class RemoteContent:
    """A blob of `size` bytes at `path` below /v1, to be read piece by piece. What is read is not verified."""

    piece = 8 << 20

    def __init__(self, service: Service, path: str, size: int) -> None:
        self.size = size
        self._service = service
        self._path = path

    def read(self, start: int, size: int) -> bytes:
        data = bytearray(size)
        if not fetch_part(self._service, self._path, memoryview(data), start, self.size):
            raise StoreError(f"a blob has gone from the cache at {self._service.url} while it was read")
        return bytes(data)

    def close(self) -> None:
        """Nothing is open between two pieces."""


def fetch_part(service: Service, path: str, view: memoryview, start: int, size: int) -> bool:
    """Fills `view` from the offset `start` of a blob of `size` bytes, continued where a connection breaks.

    False if the blob is not there, or not of this size. Raises StoreError.
    """
    end = start + len(view)
    done = start

    def attempt(timeout: float) -> bool:
        nonlocal done
        if done == end and end > start:
            return True
        whole = done == 0 and end == size
        headers = {} if whole else {"Range": f"bytes={done}-{end - 1}"}
        with service.connection.fetch(f"/v1{path}", headers, timeout=timeout) as stream:
            if stream.status in (404, 416):
                return False
            if stream.status == 200 and not whole:
                # No ranges here (or a proxy lost them): begin again, unless that would fetch everything per part.
                if start > 0 or end < size:
                    raise StoreError(f"the cache at {service.url} does not give blobs in parts")
                done = start
            base = done
            if not _announces(stream, base, end, size):
                return False
            for count in stream.into(view[base - start : end - start]):
                done = base + count
        return True

    return service.persistence.run(attempt, progress=lambda: done, free=True)


def _announces(stream: Stream, start: int, end: int, size: int) -> bool:
    """Whether the answer is to the question: False for a blob of another size."""
    if stream.status == 200:
        return stream.headers.get("content-length", str(size)) == str(size)
    if stream.headers.get("content-range") != f"bytes {start}-{end - 1}/{size}":
        raise UnavailableError("the cache service gives another part of a blob than was asked for")
    return True
