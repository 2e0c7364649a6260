"""Records in a directory that hosts share, changed by hard-link claims: no lock that a dead process could keep."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from cache_server.backends.posix import PosixBackend
from cache_server.errors import ConflictError, StoreError
from cache_server.leases.records import Versioned

_DIGITS = 16
_TOMBSTONE = b"deleted\n"
_ATTEMPTS = 100


class PosixRecords:
    """Each version of a record is an immutable file `leases/<name>/<generation>`; the highest number is current.

    Changing generation n means linking a complete file to the name n+1. A link fails if the name exists, on local
    file systems, NFS and Lustre, so of several writers one wins, and one that dies leaves nothing held. A reader with
    a stale view of the directory tries to claim a number that is taken, and learns so from the server.

    Superseded generations are removed, except the one before the current: a writer that was stopped for long could
    then claim a number that is free again. It looks at the directory after its link, finds a higher number, and
    takes its file back; readers never mistook it for current. Keeping one more generation means that such a look
    cannot miss both the old and the new highest while another writer is changing them. For the same reason a deleted
    record leaves a tombstone, so that its numbers go on.
    """

    def __init__(self, backend: PosixBackend) -> None:
        self.url = backend.url
        self._files = backend

    def read(self, name: str) -> Versioned | None:
        current = self._current(name)
        return None if current is None or current.data == _TOMBSTONE else current

    def create_exclusive(self, name: str, data: bytes) -> str:
        current = self._current(name)
        if current is None:
            return self._claim(name, 1, data)
        if current.data != _TOMBSTONE:
            raise ConflictError(f"the record {name} exists")
        return self._claim(name, int(current.version) + 1, data)

    def compare_and_swap(self, name: str, version: str, data: bytes) -> str:
        return self._claim(name, int(version) + 1, data)

    def delete_if(self, name: str, version: str) -> None:
        self._claim(name, int(version) + 1, _TOMBSTONE)

    def purge(self, name: str) -> None:
        for generation in self._generations(name):
            self._files.unlink(_path(name, generation))
        directory = self._files.root / "leases" / name
        with contextlib.suppress(OSError):  # an empty directory does no harm
            directory.rmdir()

    def names(self, prefix: str, *, since: float = 0.0) -> Iterator[str]:
        # A generation that is linked keeps the time at which it was staged.
        generations = self._files.scan(f"leases/{prefix}".rstrip("/"))
        recent = (found for found in generations if found.modified_at >= since)
        return iter({found.path.removeprefix("leases/").rpartition("/")[0] for found in recent})

    def _current(self, name: str) -> Versioned | None:
        for _ in range(_ATTEMPTS):
            generations = self._generations(name)
            if not generations:
                return None
            newest = max(generations)
            data = self._files.read(_path(name, newest), 1 << 21)
            if data is not None:
                return Versioned(data, str(newest))
        raise StoreError(f"the record {name} in the cache at {self.url} keeps changing")

    def _claim(self, name: str, generation: int, data: bytes) -> str:
        with self._files.staged(data) as staged:
            won = self._files.link(staged, _path(name, generation))
        if not won:
            raise ConflictError(f"generation {generation} of the record {name} is taken")
        generations = self._generations(name)
        if max(generations, default=generation) > generation:
            self._files.unlink(_path(name, generation))
            raise ConflictError(f"the record {name} is past generation {generation}")
        for old in generations:
            if old < generation - 1:
                with contextlib.suppress(StoreError):  # the claim stands; the next writer tidies up
                    self._files.unlink(_path(name, old))
        return str(generation)

    def _generations(self, name: str) -> list[int]:
        names = self._files.names(f"leases/{name}")
        return [int(text) for text in names if len(text) == _DIGITS and text.isascii() and text.isdigit()]


def _path(name: str, generation: int) -> str:
    return f"leases/{name}/{generation:0{_DIGITS}d}"
