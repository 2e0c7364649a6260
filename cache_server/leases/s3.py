"""Records in an S3 bucket, changed by conditional writes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from cache_server.backends.s3bucket import S3Bucket
from cache_server.backends.s3errors import ConditionError, ContendedError, MissingObjectError
from cache_server.errors import ConflictError, StoreError
from cache_server.jitter import jitter
from cache_server.leases.records import Versioned

_LIMIT = 1 << 21
_MARK = 32  # hex digits
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class _Seen:
    data: bytes
    etag: str
    mark: bytes  # empty where somebody else's hand wrote the object


class S3Records:
    """Each record is one object `leases/<name>`; its version is its ETag.

    The object begins with a line of random digits, new for each write. So no ETag, which may be a digest of the
    content, ever comes back. And a writer whose answer was lost on the way, and whose repeated request is refused
    because the first one succeeded, can tell its own write from somebody else's.
    """

    def __init__(self, bucket: S3Bucket) -> None:
        self.url = bucket.url
        self._bucket = bucket
        self._lock = threading.Lock()
        # Writes that may or may not have happened, by the record and the version they were to replace.
        self._unsure: dict[tuple[str, str | None], set[bytes]] = {}

    def read(self, name: str) -> Versioned | None:
        seen = self._look(name)
        return None if seen is None else Versioned(seen.data, seen.etag)

    def create_exclusive(self, name: str, data: bytes) -> str:
        return self._put(name, None, data)

    def compare_and_swap(self, name: str, version: str, data: bytes) -> str:
        return self._put(name, version, data)

    def delete_if(self, name: str, version: str) -> None:
        # Where a server ignores this condition, the holder of a record that goes is refused from then on: a compile
        # may repeat, and nothing is mixed up.
        for _ in range(_ATTEMPTS):
            try:
                return self._bucket.delete(_path(name), IfMatch=version)
            except (ConditionError, MissingObjectError):
                raise ConflictError(f"the record {name} is no longer at version {version}") from None
            except ContendedError:
                _step_aside()
        raise ConflictError(f"the record {name} keeps changing")

    def purge(self, name: str) -> None:
        self._bucket.delete(_path(name))

    def names(self, prefix: str, *, since: float = 0.0) -> Iterator[str]:
        found = self._bucket.scan(f"leases/{prefix}".rstrip("/"))
        return (it.path.removeprefix("leases/") for it in found if it.modified_at >= since)

    def _put(self, name: str, version: str | None, data: bytes) -> str:
        mark = os.urandom(_MARK // 2).hex().encode()
        over = version
        for _ in range(_ATTEMPTS):
            condition = {"IfNoneMatch": "*"} if over is None else {"IfMatch": over}
            try:
                etag = self._bucket.put(_path(name), mark + b"\n" + data, **condition)
            except MissingObjectError:
                raise ConflictError(f"the record {name} is gone") from None
            except (ConditionError, ContendedError) as error:
                seen = self._look(name)
                if seen is not None and seen.mark == mark:
                    etag = seen.etag
                elif seen is not None and self._is_unsure(name, version, seen.mark):
                    over = seen.etag  # nobody but this process has changed it since `version`
                    continue
                elif isinstance(error, ConditionError):
                    raise ConflictError(f"the record {name} was changed by somebody else") from None
                else:
                    _step_aside()
                    continue
            except StoreError:
                with self._lock:
                    self._unsure.setdefault((name, version), set()).add(mark)
                raise
            with self._lock:
                self._unsure.pop((name, version), None)
            return etag
        raise ConflictError(f"the record {name} keeps changing")

    def _is_unsure(self, name: str, version: str | None, mark: bytes) -> bool:
        with self._lock:
            return mark in self._unsure.get((name, version), ())

    def _look(self, name: str) -> _Seen | None:
        fetched = self._bucket.get(_path(name), _LIMIT)
        if fetched is None:
            return None
        mark, newline, data = fetched.data.partition(b"\n")
        if len(mark) != _MARK or not newline:
            return _Seen(fetched.data, fetched.etag, b"")
        return _Seen(data, fetched.etag, mark)


def _path(name: str) -> str:
    return f"leases/{name}"


def _step_aside() -> None:
    """Lets the other one finish; at random, so that two do not meet again."""
    time.sleep(jitter(0.01, 0.1))
