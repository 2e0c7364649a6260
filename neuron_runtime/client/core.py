"""One NeuronCore as its owner holds it: HBM, submission queue, and what is still in flight."""

from __future__ import annotations

import mmap
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from neuron_runtime.device.hbm import HbmAllocator, HbmUsage
from neuron_runtime.protocol.queue import CommandKind, QueueEndpoint, QueueProducer, SubmissionQueue
from neuron_runtime.status import NrtError, NrtStatus

_GIVE_BACK_BYTES = 1 << 20  # smaller freed ranges keep their pages for the next tensor
_HOST_RESERVE_BYTES = 256 << 20
_CHECK_HOST_ABOVE = 64 << 20


class Core:
    """Thread-safe. `alive` raises when the executor is gone; `timeout` in seconds bounds a stalled command."""

    def __init__(
        self,
        number: int,
        arena: mmap.mmap,
        queue: QueueProducer,
        alive: Callable[[], None],
        timeout: float | None,
    ) -> None:
        self.number = number
        self.arena = arena
        self._queue: SubmissionQueue = queue
        self._endpoint = queue.endpoint
        self._alive = alive
        self._timeout = timeout
        self._lock = threading.RLock()
        self._allocator = HbmAllocator(len(arena))
        self._deferred: deque[tuple[int, int]] = deque()  # (last use, offset), freed but maybe still in use
        self._loaded = 0

    @property
    def timeout(self) -> float | None:
        """Seconds that a command may take; None for any time."""
        return self._timeout

    def hand_over(self, take: Callable[[QueueEndpoint], SubmissionQueue]) -> None:
        """Lets another producer write the queue from here on; this core then submits through it.

        A queue has one writer: commands submitted so far have ended when `take` is called.
        """
        with self._lock:
            self._wait(self._queue.submitted)
            former = self._queue
            self._queue = take(self._endpoint)
            former.close()

    def allocate(self, nbytes: int) -> int:
        """Offset in the arena. Raises NrtError(NRT_RESOURCE) when the core's HBM, or the host's memory, is full."""
        if nbytes > _CHECK_HOST_ABOVE:
            _check_host_memory(nbytes)
        with self._lock:
            self._collect(self._queue.completed)
            try:
                offset = self._allocator.allocate(nbytes)
            except NrtError:
                if not self._deferred:
                    self._publish()
                    raise
                self._wait(self._queue.submitted)
                self._collect(self._queue.completed)
                offset = self._allocator.allocate(nbytes)
            self._publish()
            return offset

    def free(self, offset: int, last_use: int) -> None:
        """Gives a range back once command `last_use`, which may still read it, has ended.

        Safe in a finalizer: it takes no lock. The range returns at the next call that allocates or waits.
        """
        self._deferred.append((last_use, offset))

    def submit(self, kind: CommandKind, target: int, inputs: int, operands: Sequence[int]) -> int:
        """Queues a command; its sequence number."""
        with self._lock:
            return self._queue.submit(kind, target, inputs, operands, self._alive)

    def wait(self, sequence: int) -> None:
        """Until the command has ended. Raises the first error since the last wait, whichever command made it."""
        with self._lock:
            self._wait(sequence)
            error = self._queue.take_error()
            if self._deferred:
                self._collect(self._queue.completed)
                self._publish()
        if error is not None:
            more = f"; {error.count - 1} more commands failed after it" if error.count > 1 else ""
            raise NrtError(error.status, f"{error.detail}{more}")

    def synchronize(self) -> None:
        self.wait(self._queue.submitted)

    def drain(self) -> None:
        """Waits for all submitted commands, and leaves their errors to whoever synchronises next."""
        with self._lock:
            self._wait(self._queue.submitted)

    def reserve_model(self, nbytes: int) -> None:
        """Counts a loaded model's memory. Raises NrtError(NRT_RESOURCE) when it does not fit."""
        with self._lock:
            self._allocator.reserve(nbytes)
            self._loaded += 1
            self._publish()

    def release_model(self, nbytes: int) -> None:
        with self._lock:
            self._allocator.release(nbytes)
            self._loaded -= 1
            self._publish()

    def usage(self) -> HbmUsage:
        """Bytes in use now; also publishes them for `neuron-env runtime top` and `monitor`."""
        with self._lock:
            self._collect(self._queue.completed)
            self._publish()
            return self._allocator.usage()

    def close(self) -> None:
        self._queue.close()

    def _wait(self, sequence: int) -> None:
        self._queue.wait(sequence, self._alive, self._timeout)

    def _collect(self, completed: int) -> None:
        # Frees come in program order, and so do the commands that hold them back.
        while self._deferred and self._deferred[0][0] <= completed:
            _, offset = self._deferred.popleft()
            size = self._allocator.free(offset)
            if size >= _GIVE_BACK_BYTES:
                start = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
                end = (offset + size) // mmap.PAGESIZE * mmap.PAGESIZE
                self.arena.madvise(mmap.MADV_REMOVE, start, end - start)

    def _publish(self) -> None:
        usage = self._allocator.usage()
        self._queue.publish_usage(usage.tensors, usage.tensors_peak, usage.models, usage.failures, self._loaded)


def _check_host_memory(nbytes: int) -> None:
    """The simulated HBM may be larger than this host's memory; past that the kernel would kill somebody."""
    available = _host_memory_available()
    if available is not None and nbytes > available - _HOST_RESERVE_BYTES:
        raise NrtError(
            NrtStatus.RESOURCE,
            f"the simulated HBM has room for {nbytes} bytes, but this host has only {available} bytes of memory left",
            hint="use a smaller model or batch, or a host with more memory",
        )


def _host_memory_available() -> int | None:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        return None
    return None
