"""Compile slots: no more compilers at once on a host than it has processors and memory for."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cache_server.hostcapacity import available_memory, processors
from cache_server.hostlock import prepare_private
from cache_server.result import Waiting

if TYPE_CHECKING:
    from cache_server.cache import NeffCache
    from cache_server.keys import KeyParts
    from cache_server.leases import HeldLease

log = logging.getLogger("neuron_env.cache")

QUEUED = "waiting for a slot"  # the phase that waiters and the lease show
PROCESSORS_EACH = 4  # what a compile is taken to need, beside its memory
_SHORTEST_POLL = 0.01
_LONGEST_POLL = 0.25
_TELL_EVERY = 1.0
_NOTE_LIMIT = 200  # bytes

# A compile function may itself ask the cache for another graph. It must not wait for the slot that it holds.
_inside: ContextVar[bool] = ContextVar("neuron_env_compile_slot", default=False)


def slots_for(cpus: int, memory: int | None, memory_each: int) -> int:
    """How many compiles fit: each takes PROCESSORS_EACH processors and `memory_each` bytes. At least 1."""
    by_memory = cpus if memory is None else memory // max(memory_each, 1)
    return max(1, min(cpus // PROCESSORS_EACH, by_memory))


@dataclass(frozen=True, slots=True)
class Queue:
    """What a process that waits for a slot sees. Times are seconds; `gives_up_in` counts from the last change."""

    slots: int
    holders: tuple[str, ...]
    waited_seconds: float
    gives_up_in: float


class CompileSlots:
    """`count` slots in a private directory, each a file that is locked while its holder compiles.

    The kernel drops the lock of a process that dies, so its slot is free at once. The names hold the boot's identity:
    on a directory that several hosts share, each has slots of its own. A count of 0 means no limit; None one that is
    worked out from processors and memory when the first slot is wanted. Where the directory or its locks do not work,
    nothing is limited: a compile is late at worst, never lost.
    """

    def __init__(self, directory: Path, count: int | None, *, memory_each: int) -> None:
        self._directory = directory
        self._count = count
        self._memory_each = memory_each

    @property
    def count(self) -> int:
        if self._count is None:
            self._count = slots_for(processors(), available_memory(), self._memory_each)
        return self._count

    @contextlib.contextmanager
    def hold(self, *, patience: float, tell: Callable[[Queue], None] = lambda queue: None) -> Iterator[bool]:
        """Runs the body with a slot; False if it runs without one.

        Waits for as long as slots change hands, and no longer than `patience` seconds without. `tell` is called about
        once a second meanwhile, and may raise to end the wait.
        """
        if self.count == 0 or _inside.get():
            yield False
            return
        slot = self._acquire(patience, tell)
        token = _inside.set(True)
        try:
            yield slot is not None
        finally:
            _inside.reset(token)
            if slot is not None:
                os.close(slot)  # which drops the lock

    def _acquire(self, patience: float, tell: Callable[[Queue], None]) -> int | None:
        started = changed = time.monotonic()
        tell_at, poll = started, _SHORTEST_POLL
        seen: tuple[str, ...] = ()
        while True:
            try:
                slot = self._try()
                if slot is not None:
                    return slot
                notes = self._notes()
            except OSError as error:
                log.debug("compiles are not limited: %s", error)
                return None
            now = time.monotonic()
            if notes != seen:
                seen, changed = notes, now
            if now - changed >= patience:
                log.warning("no compile slot became free in %.0f s; compiling without one", patience)
                return None
            if now >= tell_at:
                tell_at = now + _TELL_EVERY
                holders = tuple(note.partition(" @")[0] for note in notes if note)
                tell(Queue(self.count, holders, now - started, patience - (now - changed)))
            time.sleep(min(poll, patience - (now - changed)))
            poll = min(poll * 1.5, _LONGEST_POLL)

    def _try(self) -> int | None:
        """The open file of a slot that is now this process's; None if all are taken."""
        prepare_private(self._directory)
        for path in self._paths():
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                continue
            except BaseException:
                os.close(fd)
                raise
            with contextlib.suppress(OSError):  # for people, and for waiters to see that the queue moves
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"pid {os.getpid()} @{os.urandom(8).hex()}".encode(), 0)
            return fd
        return None

    def _notes(self) -> tuple[str, ...]:
        notes = []
        for path in self._paths():
            with path.open("rb") as file:
                notes.append(file.read(_NOTE_LIMIT).decode("ascii", "replace"))
        return tuple(notes)

    def _paths(self) -> list[Path]:
        return [self._directory / f"{_boot()}-{number}.lock" for number in range(self.count)]


@contextlib.contextmanager
def compile_slot(cache: NeffCache, parts: KeyParts, label: str, lease: HeldLease | None) -> Iterator[None]:
    """Runs the body, one compile, with a slot of this host; whoever waits for it sees that it waits."""
    phase = "" if lease is None else lease.phase

    def tell(queue: Queue) -> None:
        if lease is not None:
            lease.phase = QUEUED
        if cache.progress is None:
            return
        holders = ", ".join(queue.holders) or "other compiles"
        cache.progress(
            Waiting(
                key=parts.key,
                label=label,
                owner=f"{holders} on {cache.owner.host}",
                phase=QUEUED,
                age_seconds=queue.waited_seconds,
                waited_seconds=queue.waited_seconds,
                gives_up_in=queue.gives_up_in,
                for_slot=True,
            )
        )

    begun = time.monotonic()
    with cache.slots.hold(patience=cache.settings.wait_seconds, tell=tell):
        cache.stats.add(seconds_queued=time.monotonic() - begun)
        if lease is not None:
            lease.phase = phase
        yield


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return os.uname().nodename
