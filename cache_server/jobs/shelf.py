"""Where the records of jobs are kept."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from typing import Protocol

from cache_server.backends import Backend
from cache_server.errors import CacheError
from cache_server.jobs.record import RECORD_LIMIT, Job, JobRecord, decode_record, merge
from cache_server.names import check_job, check_namespace
from cache_server.store import Store
from cache_server.tier import SharedTier

log = logging.getLogger("neuron_env.cache")

_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


class JobShelf(Protocol):
    """The job records of one namespace, each in a part that one process writes. Methods raise StoreError."""

    def put(self, job: str, part: str, data: bytes) -> None:
        """Puts a record in place of what the part held."""
        ...

    def names(self) -> list[str]:
        """The jobs that there are, sorted."""
        ...

    def records(self, job: str) -> Iterator[tuple[str, bytes]]:
        """The parts of a job and what they hold."""
        ...

    def remove(self, job: str, part: str) -> None: ...


class BackendShelf:
    """Records at `jobs/<namespace>/<job>/<part>.json` in a store. One object a process: nobody waits for anybody."""

    def __init__(self, backend: Backend, namespace: str) -> None:
        self._backend = backend
        self._root = f"jobs/{check_namespace(namespace)}"

    def put(self, job: str, part: str, data: bytes) -> None:
        self._backend.write(self._path(job, part), data)

    def names(self) -> list[str]:
        depth = self._root.count("/") + 1
        return sorted({path.split("/")[depth] for path in self._backend.walk(self._root) if path.count("/") > depth})

    def records(self, job: str) -> Iterator[tuple[str, bytes]]:
        for part in self.parts(job):
            data = self.get(job, part)
            if data is not None:
                yield part, data

    def parts(self, job: str) -> list[str]:
        """The names of a job's parts, sorted."""
        names = (path.rpartition("/")[2] for path in self._backend.walk(f"{self._root}/{check_job(job)}"))
        found = sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))
        return [name for name in found if _PART.fullmatch(name)]

    def get(self, job: str, part: str) -> bytes | None:
        """What a part holds; None if there is none."""
        return self._backend.read(self._path(job, part), RECORD_LIMIT)

    def remove(self, job: str, part: str) -> None:
        path = self._path(job, part)
        found = self._backend.find(path)
        if found is not None:
            self._backend.remove(found)

    def _path(self, job: str, part: str) -> str:
        return f"{self._root}/{check_job(job)}/{check_part(part)}.json"


def check_part(text: str) -> str:
    """Returns `text`. Raises ValueError unless it can name a part of a job."""
    if _PART.fullmatch(text) is None:
        raise ValueError(f"not a name of a job's part: {text[:80]!r}")
    return text


def fresh_part(host: str, pid: int) -> str:
    """A name for one process's record that no other process has."""
    place = re.sub(r"[^A-Za-z0-9._-]", "-", host).lstrip("._-")[:100] or "host"
    return f"{place}-{pid}-{os.urandom(6).hex()}"


def shelf_of(tier: SharedTier) -> JobShelf:
    """The job records of the namespace that `tier` is for."""
    if isinstance(tier.store, Store):
        return BackendShelf(tier.store.backend, tier.store.namespace)
    from cache_server.remote.jobs import RemoteShelf
    from cache_server.remote.tier import RemoteTier

    assert isinstance(tier, RemoteTier)
    return RemoteShelf(tier.service, tier.store.namespace)


def read_records(shelf: JobShelf, name: str) -> list[tuple[str, JobRecord]]:
    """The parts of a job that can be understood; a damaged one is named in the log. Raises StoreError."""
    known = []
    for part, data in shelf.records(check_job(name)):
        try:
            known.append((part, decode_record(data)))
        except ValueError as error:
            log.warning("the record %s of job %s is passed over: %s", part, name, error)
    return known


def read_job(shelf: JobShelf, name: str) -> Job:
    """All that is known of a job. Raises CacheError if there is nothing, and StoreError."""
    job = merge(name, (record for _, record in read_records(shelf, name)))
    if job is None:
        raise CacheError(
            f"nothing is written down of a job {name!r}",
            hint="run it once with `NEURON_ENV_JOB` set to that name; `neuron-env cache jobs ls` lists what there is",
        )
    return job
