"""Records in this process, for `memory://` stores and for tests."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

from cache_server.errors import ConflictError
from cache_server.leases.records import Versioned


class MemoryRecords:
    """Excludes between the threads of one process."""

    _places: dict[str, MemoryRecords] = {}  # noqa: RUF012  one set of records a URL, as fsspec has one store
    _places_lock = threading.Lock()

    def __init__(self, url: str = "memory://") -> None:
        self.url = url
        self._lock = threading.Lock()
        self._versions = itertools.count(1)
        self._records: dict[str, Versioned] = {}

    @classmethod
    def at(cls, url: str) -> MemoryRecords:
        """The records that every user of `url` in this process shares."""
        with cls._places_lock:
            return cls._places.setdefault(url, cls(url))

    def read(self, name: str) -> Versioned | None:
        with self._lock:
            return self._records.get(name)

    def create_exclusive(self, name: str, data: bytes) -> str:
        with self._lock:
            if name in self._records:
                raise ConflictError(f"the record {name} exists")
            return self._put(name, data)

    def compare_and_swap(self, name: str, version: str, data: bytes) -> str:
        with self._lock:
            self._expect(name, version)
            return self._put(name, data)

    def delete_if(self, name: str, version: str) -> None:
        with self._lock:
            self._expect(name, version)
            del self._records[name]

    def purge(self, name: str) -> None:
        with self._lock:
            self._records.pop(name, None)

    def names(self, prefix: str, *, since: float = 0.0) -> Iterator[str]:
        with self._lock:
            names = list(self._records)
        return (name for name in names if not prefix or name.startswith(f"{prefix}/"))

    def _put(self, name: str, data: bytes) -> str:
        record = Versioned(data, str(next(self._versions)))
        self._records[name] = record
        return record.version

    def _expect(self, name: str, version: str) -> None:
        current = self._records.get(name)
        if current is None or current.version != version:
            raise ConflictError(f"the record {name} is no longer at version {version}")
