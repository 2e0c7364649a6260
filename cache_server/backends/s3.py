"""A store in an S3 bucket, on Amazon's servers or any that speaks their language."""

from __future__ import annotations

from collections.abc import Iterator

from cache_server.backends.base import Content, Found, Incoming
from cache_server.backends.s3bucket import S3Bucket
from cache_server.backends.s3errors import ConditionError, ContendedError, InterruptedReadError, MissingObjectError
from cache_server.backends.s3parts import LARGE, get_in_parts, put_in_parts
from cache_server.backends.s3stream import S3Content, S3Incoming
from cache_server.errors import StoreError

_ATTEMPTS = 5
_COPY_LIMIT = 5 << 30  # bytes of an object that S3 copies in one request


class S3Backend:
    """Objects below the root of `bucket`. S3 shows every object whole or not at all, and its newest version to all.

    `create` and `remove_if` are as good as the server's conditional writes; on one that ignores the conditions they
    still look before they act.
    """

    def __init__(self, bucket: S3Bucket, *, large: int = LARGE) -> None:
        self.url = bucket.url
        self._bucket = bucket
        self._large = large

    def read(self, path: str, limit: int) -> bytes | None:
        if limit >= self._large:
            data = self._read_large(path, limit)
            if data is not None:
                return data
        fetched = self._bucket.get(path, limit)
        return None if fetched is None else fetched.data

    def write(self, path: str, data: bytes | memoryview) -> None:
        data = bytes(data)  # boto3 takes no other
        if len(data) >= self._large:
            put_in_parts(self._bucket, path, data)
        else:
            self._bucket.put(path, data)

    def create(self, path: str, data: bytes) -> bool:
        if self._bucket.head(path) is not None:
            return False
        for _ in range(_ATTEMPTS):
            try:
                self._bucket.put(path, data, IfNoneMatch="*")
            except ConditionError:
                return False
            except ContendedError:
                continue
            return True
        raise StoreError(f"{path} in the cache at {self.url} keeps changing")

    def remove_if(self, path: str, expected: bytes) -> bool:
        fetched = self._bucket.get(path, len(expected))
        if fetched is None or fetched.data != expected:
            return False
        return self._delete(path, fetched.etag)

    def move(self, path: str, target: str) -> bool:
        seen = self._bucket.head(path)
        if seen is None:
            return False
        try:
            self._bucket.copy(path, target)
        except MissingObjectError:
            return False
        # What somebody put there meanwhile is not what was to go.
        return self._delete(path, seen[1])

    def walk(self, prefix: str) -> Iterator[str]:
        return self._bucket.walk(prefix)

    def scan(self, prefix: str) -> Iterator[Found]:
        return self._bucket.scan(prefix)

    def remove(self, found: Found) -> bool:
        seen = self._bucket.find(found.path)
        return seen == found and self._delete(found.path, found.version.rpartition(" ")[0])

    def find(self, path: str) -> Found | None:
        return self._bucket.find(path)

    def open(self, path: str) -> Content | None:
        seen = self._bucket.head(path)
        return None if seen is None else S3Content(self._bucket, path, *seen)

    def receive(self, path: str, size: int, *, name: str = "") -> Incoming:
        return S3Incoming(self._bucket, path, size)

    def resume(self, path: str, size: int, *, name: str) -> tuple[Incoming, Content] | None:
        return None  # the rest of a part is in the memory of whoever began

    def touch(self, path: str) -> bool:
        seen = self._bucket.head(path)
        if seen is None or seen[0] > _COPY_LIMIT:
            return False
        try:
            self._bucket.copy(path, path, MetadataDirective="REPLACE")
        except MissingObjectError:
            return False
        return True

    def presigned(self, path: str, seconds: int) -> str | None:
        return self._bucket.presigned(path, seconds)

    def _delete(self, path: str, etag: str) -> bool:
        try:
            self._bucket.delete(path, IfMatch=etag)
        except (ConditionError, ContendedError, MissingObjectError):
            return False
        return True

    def _read_large(self, path: str, limit: int) -> bytes | None:
        """The content by several connections; None where one is enough, or where the server has no parts to give."""
        seen = self._bucket.head(path)
        if seen is None or not self._large <= seen[0] <= limit:
            return None
        try:
            return get_in_parts(self._bucket, path, *seen)
        except (ConditionError, InterruptedReadError):
            return None
