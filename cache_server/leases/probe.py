"""Proof, at the first use of a store, that its records really exclude."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from cache_server.errors import ConflictError, NotExclusiveError
from cache_server.leases.records import RecordStore

_RACERS = 4


def probe(records: RecordStore) -> None:
    """Raises NotExclusiveError, naming the store, if two writers can win. Raises StoreError if it cannot be written.

    Many stores accept a conditional write and ignore the condition, so nothing but trying tells. Tried are: creating
    twice, changing a version that is no longer current, and several threads changing one version at once. What this
    cannot show is how two hosts see one mount; the records' own protocol answers for that.

    A store that goes away meanwhile loses records as well, and that is no proof: a refusal counts while it can be
    written still.
    """
    try:
        _try(records)
    except NotExclusiveError:
        name = _fresh_name()
        records.create_exclusive(name, b"probe\n")
        records.purge(name)
        raise


def _fresh_name() -> str:
    return f"probe/{os.urandom(2).hex()[:2]}/{os.urandom(16).hex()}"


def _try(records: RecordStore) -> None:
    name = _fresh_name()
    try:
        first = records.create_exclusive(name, b"probe 1\n")
        _must_conflict(records, "created one record twice", lambda: records.create_exclusive(name, b"probe 2\n"))
        second = records.compare_and_swap(name, first, b"probe 3\n")
        _must_conflict(
            records, "changed a version that was gone", lambda: records.compare_and_swap(name, first, b"probe 4\n")
        )
        seen = records.read(name)
        if seen is None or seen.data != b"probe 3\n" or seen.version != second:
            raise _refusal(records, "did not give back what was written last")
        winners = _race(records, name, second)
        if winners != 1:
            raise _refusal(records, f"let {winners} of {_RACERS} concurrent writers win")
    finally:
        records.purge(name)


def _must_conflict(records: RecordStore, what: str, act: Callable[[], object]) -> None:
    try:
        act()
    except ConflictError:
        return
    raise _refusal(records, what)


def _race(records: RecordStore, name: str, version: str) -> int:
    start = threading.Barrier(_RACERS)
    wins: list[str] = []
    errors: list[Exception] = []

    def run(racer: int) -> None:
        start.wait()
        try:
            wins.append(records.compare_and_swap(name, version, f"racer {racer}\n".encode()))
        except ConflictError:
            pass
        except Exception as error:  # noqa: BLE001  handed to the caller below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(racer,)) for racer in range(_RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return len(wins)


def _refusal(records: RecordStore, what: str) -> NotExclusiveError:
    return NotExclusiveError(
        f"the store at {records.url} does not exclude concurrent writers: it {what}",
        hint="graphs are cached there without leases, so several hosts may compile the same one; "
        "to compile each once, use Amazon S3 or another server with conditional writes, or a directory with hard links",
    )
