"""The submission queue of one NeuronCore: a ring in memory that a client and its executor both map.

The client appends commands, the executor consumes them in order and publishes how far it has come. Every field
is a native 64-bit word written by one side only, so neither side needs a lock; the layout is fixed, so a C++
client can write it. Words that one side writes share no cache line with the other's.

Memory order. A command's words, and the tensor bytes it names, are stored before the word that publishes them.
On x86-64 other cores see stores in that order, so a reader may poll. Elsewhere a reader polls never and sleeps
always: waking it takes a system call on both sides, and that orders memory (`POLLING_IS_ORDERED`).

The executor yields the processor between looks: where there is more work than cores, its client may be waiting for it.

Sleeping. A reader that has polled in vain for a moment raises its flag, looks once more, and blocks on its
eventfd. A writer that has published looks at the flag and writes the eventfd. The client's flag is the number of
the command it waits for, so that a long queue costs one wake-up and not one a command. Should the two stores cross, the
bounded block (`WAKE_RECHECK_S`) ends the wait: late, never lost.
"""

from __future__ import annotations

import mmap
import os
import platform
import select
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from neuron_runtime.status import NrtError, NrtStatus

WORD = 8
HEADER_BYTES = 4096
QUEUE_BYTES = 256 << 10
RING_WORDS = (QUEUE_BYTES - HEADER_BYTES) // WORD
_RING = HEADER_BYTES // WORD
MAX_COMMAND_WORDS = RING_WORDS // 4
LAYOUT = 0x4E45_5551_0000_0002  # "NEUQ", layout version 2

POLLING_IS_ORDERED = platform.machine() in ("x86_64", "AMD64")
SPIN_S = 100e-6 if POLLING_IS_ORDERED and (os.cpu_count() or 1) > 1 else 0.0
WAKE_RECHECK_S = 0.005

# Words the client writes.
_LAYOUT, _HEAD, _SUBMITTED, _WAKE_AT, _ERROR_ACK = 0, 8, 9, 10, 11
HBM_TENSORS, HBM_PEAK, HBM_MODELS, HBM_FAILURES, LOADED_MODELS = 16, 17, 18, 19, 20
# Words the executor writes.
_TAIL, _COMPLETED, _EXECUTOR_SLEEPS = 32, 33, 34
_ERROR_COUNT, _ERROR_SEQUENCE, _ERROR_STATUS, _ERROR_LENGTH = 40, 41, 42, 43
EXECUTIONS, EXECUTION_ERRORS, BUSY_NS, FLOPS = 48, 49, 50, 51
_ERROR_TEXT_AT = 2048
_ERROR_TEXT_BYTES = HEADER_BYTES - _ERROR_TEXT_AT

_WRAP = (1 << 32) - 1


class CommandKind(IntEnum):
    """What a command does; addresses are byte offsets in the core's HBM.

    `EXECUTE`: target is a model, operands are input addresses, output addresses, immediates. `inputs` counts the input
    addresses in its low half and the immediates in its high half: these are numbers that travel in the command,
    one word each, and stand for the model's last inputs.
    `COPY`: destination, source, bytes. `FILL`: destination, bytes, byte value.
    `COPY_STRIDED`: destination, source, bytes an element, then sizes, destination strides and source strides in bytes.
    `FILL_STRIDED`: destination, bytes an element, the element in two words, then sizes and strides in bytes.
    `STAMP`: an address that gets the time of the host's monotonic clock in nanoseconds.
    """

    EXECUTE = 1
    COPY = 2
    FILL = 3
    COPY_STRIDED = 4
    FILL_STRIDED = 5
    STAMP = 6


_KINDS = frozenset(int(kind) for kind in CommandKind)


# (kind, sequence, target, inputs, operands): operands are byte offsets in the core's HBM arena, or sizes. A plain
# tuple, since one is made for each execution.
Command = tuple[int, int, int, int, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class QueueEndpoint:
    """Where a producer finds its queue: descriptors, and the core's number within the memory."""

    memory: int
    core_index: int
    wake_executor: int
    wake_client: int


@dataclass(frozen=True, slots=True)
class CommandError:
    """The first error since the client last acknowledged, and how many there were."""

    sequence: int
    status: NrtStatus
    detail: str
    count: int


class SubmissionQueue(Protocol):
    """What a core's owner asks of its queue, whoever writes it."""

    @property
    def submitted(self) -> int: ...

    @property
    def completed(self) -> int: ...

    def submit(
        self, kind: CommandKind, target: int, inputs: int, operands: Sequence[int], alive: Callable[[], None]
    ) -> int: ...

    def wait(self, sequence: int, alive: Callable[[], None], timeout: float | None = None) -> None: ...

    def take_error(self) -> CommandError | None: ...

    def publish_usage(self, tensors: int, peak: int, models: int, failures: int, loaded: int) -> None: ...

    def close(self) -> None: ...


class _Mapping:
    """The words of one core's queue inside the client's queue memory."""

    def __init__(self, fd: int, core_index: int) -> None:
        self._map = mmap.mmap(fd, QUEUE_BYTES, offset=core_index * QUEUE_BYTES)
        self._bytes = memoryview(self._map)
        self.words = self._bytes.cast("Q")

    def text(self, length: int) -> str:
        start = _ERROR_TEXT_AT
        return bytes(self._bytes[start : start + min(length, _ERROR_TEXT_BYTES)]).decode(errors="replace")

    def set_text(self, text: str) -> int:
        data = text.encode()[:_ERROR_TEXT_BYTES]
        self._bytes[_ERROR_TEXT_AT : _ERROR_TEXT_AT + len(data)] = data
        return len(data)

    def pack(self, at: int, form: struct.Struct, values: Sequence[int]) -> None:
        form.pack_into(self._map, HEADER_BYTES + at * WORD, *values)

    def unpack(self, at: int, count: int) -> tuple[int, ...]:
        return _form(count).unpack_from(self._map, HEADER_BYTES + at * WORD)

    def close(self) -> None:
        self.words.release()
        self._bytes.release()
        self._map.close()


_forms: dict[int, struct.Struct] = {}


def _form(count: int) -> struct.Struct:
    form = _forms.get(count)
    if form is None:
        # Native size and alignment: each word is then stored whole, never byte by byte.
        form = _forms[count] = struct.Struct(f"@{count}Q")
    return form


class QueueProducer:
    """The client's end. Not thread-safe; `alive` is asked while waiting and raises when the executor is gone."""

    def __init__(self, memory: int, core_index: int, wake_executor: int, wake_client: int) -> None:
        self.endpoint = QueueEndpoint(memory, core_index, wake_executor, wake_client)
        self._memory = _Mapping(memory, core_index)
        self._words = self._memory.words
        self._words[_LAYOUT] = LAYOUT
        self._wake_executor = wake_executor
        self._wake_client = wake_client
        self._head = self._words[_HEAD]
        self._submitted: int = self._words[_SUBMITTED]

    @property
    def submitted(self) -> int:
        return self._submitted

    @property
    def completed(self) -> int:
        return self._words[_COMPLETED]

    def submit(
        self,
        kind: CommandKind,
        target: int,
        inputs: int,
        operands: Sequence[int],
        alive: Callable[[], None],
    ) -> int:
        """Appends a command; its sequence number. Blocks while the ring is full.

        Raises NrtError(NRT_QUEUE_FULL) when the command can never fit.
        """
        length = 4 + len(operands)
        if length > MAX_COMMAND_WORDS:
            raise NrtError(
                NrtStatus.QUEUE_FULL,
                f"a command of {len(operands)} operands is over the limit of {MAX_COMMAND_WORDS - 4}",
            )
        words = self._words
        at = self._head % RING_WORDS
        gap = RING_WORDS - at if RING_WORDS - at < length else 0
        if self._head + gap + length - words[_TAIL] > RING_WORDS:
            self._wait(
                lambda: self._head + gap + length - words[_TAIL] <= RING_WORDS,
                # Room for this one would do; half the queue is a wake-up well spent.
                lambda: (words[_COMPLETED] + self._submitted + 1) // 2,
                alive,
                None,
            )
        if gap:
            self._memory.pack(at, _form(1), (_WRAP,))
            self._head += gap
            at = 0
        sequence = self._submitted + 1
        self._memory.pack(at, _form(length), (length | kind << 32, sequence, target, inputs, *operands))
        self._head += length
        self._submitted = sequence
        words[_SUBMITTED] = sequence
        words[_HEAD] = self._head
        if words[_EXECUTOR_SLEEPS]:
            os.eventfd_write(self._wake_executor, 1)
        return sequence

    def wait(self, sequence: int, alive: Callable[[], None], timeout: float | None = None) -> None:
        """Until command `sequence` has ended.

        Raises NrtError(NRT_TIMEOUT) when no command ends for `timeout` seconds.
        """
        words = self._words
        if words[_COMPLETED] < sequence:
            self._wait(lambda: words[_COMPLETED] >= sequence, lambda: sequence, alive, timeout)

    def take_error(self) -> CommandError | None:
        """The first error since the last call, once."""
        words = self._words
        count = words[_ERROR_COUNT] - words[_ERROR_ACK]
        if not count:
            return None
        try:
            status = NrtStatus(words[_ERROR_STATUS])
        except ValueError:
            status = NrtStatus.FAILURE
        error = CommandError(words[_ERROR_SEQUENCE], status, self._memory.text(words[_ERROR_LENGTH]), count)
        words[_ERROR_ACK] = words[_ERROR_COUNT]
        return error

    def publish_usage(self, tensors: int, peak: int, models: int, failures: int, loaded: int) -> None:
        """What `top` and `monitor` read; bytes, and two counts."""
        words = self._words
        words[HBM_TENSORS], words[HBM_PEAK], words[HBM_MODELS] = tensors, peak, models
        words[HBM_FAILURES], words[LOADED_MODELS] = failures, loaded

    def close(self) -> None:
        self._memory.close()

    def _wait(
        self,
        done: Callable[[], bool],
        wake_at: Callable[[], int],
        alive: Callable[[], None],
        timeout: float | None,
    ) -> None:
        if SPIN_S:
            until = time.perf_counter() + SPIN_S
            while time.perf_counter() < until:
                if done():
                    return
        words = self._words
        poller = select.poll()
        poller.register(self._wake_client, select.POLLIN)
        progress, since = words[_COMPLETED], time.monotonic()
        pause = WAKE_RECHECK_S
        while True:
            words[_WAKE_AT] = wake_at()
            if done():
                break
            if poller.poll(pause * 1000):
                _drain(self._wake_client)
            else:
                pause = min(pause * 2, 0.1)
            if done():
                break
            alive()
            if words[_COMPLETED] != progress:
                progress, since = words[_COMPLETED], time.monotonic()
            elif timeout is not None and time.monotonic() - since > timeout:
                words[_WAKE_AT] = 0
                raise NrtError(
                    NrtStatus.TIMEOUT,
                    f"no command ended on this NeuronCore for {timeout:g} s",
                    hint="raise `NEURON_RT_EXEC_TIMEOUT` (seconds) when the graph is known to take longer",
                )
        words[_WAKE_AT] = 0


class QueueConsumer:
    """The executor's end: one thread a core takes commands, runs them, and completes them."""

    def __init__(self, memory: int, core_index: int, wake_executor: int, wake_client: int) -> None:
        self._memory = _Mapping(memory, core_index)
        self._words = self._memory.words
        if self._words[_LAYOUT] != LAYOUT:
            raise NrtError(
                NrtStatus.INVALID,
                f"unknown queue layout {self._words[_LAYOUT]:#x}; this runtime speaks {LAYOUT:#x}",
            )
        self._wake_executor = wake_executor
        self._wake_client = wake_client
        self._tail = self._words[_TAIL]

    def next(self) -> Command:
        """The next command; blocks until there is one. Raises NrtError(NRT_INVALID) on a corrupt ring."""
        words, tail = self._words, self._tail
        if words[_HEAD] == tail:
            self._sleep()
        at = tail % RING_WORDS
        first = words[_RING + at]
        if first == _WRAP:
            self._tail = words[_TAIL] = tail + RING_WORDS - at
            return self.next()
        length, kind = first & 0xFFFF_FFFF, first >> 32
        if not 4 <= length <= min(MAX_COMMAND_WORDS, RING_WORDS - at) or kind not in _KINDS:
            raise NrtError(NrtStatus.INVALID, f"corrupt command queue: word {first:#x} at {at}")
        found = self._memory.unpack(at, length)
        self._tail = words[_TAIL] = tail + length
        return kind, found[1], found[2], found[3], found[4:]

    def complete(self, sequence: int) -> None:
        words = self._words
        words[_COMPLETED] = sequence
        wake_at = words[_WAKE_AT]
        if wake_at and sequence >= wake_at:
            os.eventfd_write(self._wake_client, 1)

    def fail(self, sequence: int, status: NrtStatus, detail: str) -> None:
        """Records an error before its command completes; the first stays until the client has taken it."""
        words = self._words
        if words[_ERROR_COUNT] == words[_ERROR_ACK]:
            words[_ERROR_LENGTH] = self._memory.set_text(detail)
            words[_ERROR_STATUS] = int(status)
            words[_ERROR_SEQUENCE] = sequence
        words[_ERROR_COUNT] += 1
        words[EXECUTION_ERRORS] += 1

    def account(self, busy_ns: int, flops: int) -> None:
        words = self._words
        words[EXECUTIONS] += 1
        words[BUSY_NS] += busy_ns
        words[FLOPS] += flops

    def close(self) -> None:
        self._memory.close()

    def _sleep(self) -> None:
        words, tail = self._words, self._tail
        if SPIN_S:
            until = time.perf_counter() + SPIN_S
            while time.perf_counter() < until:
                if words[_HEAD] != tail:
                    return
                os.sched_yield()
        poller = select.poll()
        poller.register(self._wake_executor, select.POLLIN)
        pause = WAKE_RECHECK_S
        words[_EXECUTOR_SLEEPS] = 1
        while words[_HEAD] == tail:
            if poller.poll(pause * 1000):
                _drain(self._wake_executor)
            else:
                pause = min(pause * 2, 1.0)
        words[_EXECUTOR_SLEEPS] = 0


@dataclass(frozen=True, slots=True)
class CoreCounters:
    """One core's counters as an onlooker reads them: bytes, counts, nanoseconds."""

    submitted: int
    completed: int
    executions: int
    errors: int
    busy_ns: int
    flops: int
    hbm_tensors: int
    hbm_peak: int
    hbm_models: int
    loaded_models: int


def read_counters(memory: int, core_index: int) -> CoreCounters:
    """Reads one core's header without mapping it; values may be a moment apart."""
    raw = os.pread(memory, HEADER_BYTES, core_index * QUEUE_BYTES)
    words = memoryview(raw).cast("Q")
    return CoreCounters(
        words[_SUBMITTED],
        words[_COMPLETED],
        words[EXECUTIONS],
        words[EXECUTION_ERRORS],
        words[BUSY_NS],
        words[FLOPS],
        words[HBM_TENSORS],
        words[HBM_PEAK],
        words[HBM_MODELS],
        words[LOADED_MODELS],
    )


def _drain(fd: int) -> None:
    try:
        os.eventfd_read(fd)
    except BlockingIOError:
        return
