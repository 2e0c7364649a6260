"""One NeuronCore at work: a thread that takes commands from the core's queue and runs them in order."""

from __future__ import annotations

import mmap
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable

from neuron_runtime.errors import NeuronEnvError
from neuron_runtime.executor.dma import Dma
from neuron_runtime.executor.models import LoadedModel
from neuron_runtime.protocol.queue import Command, CommandKind, QueueConsumer
from neuron_runtime.status import NrtError, NrtStatus

CORRUPT_QUEUE_EXIT = 70
_EXECUTE = int(CommandKind.EXECUTE)


class CoreWorker:
    """Runs one core's commands. Models are added and removed by the control thread, by identity."""

    def __init__(self, core: int, arena: mmap.mmap, queue: QueueConsumer) -> None:
        self.core = core
        self.arena = arena
        self.models: dict[int, LoadedModel] = {}
        self._queue = queue
        dma = Dma(arena)
        self._memory_commands: dict[int, Callable[..., None]] = {
            CommandKind.COPY: dma.copy,
            CommandKind.FILL: dma.fill,
            CommandKind.COPY_STRIDED: dma.copy_strided,
            CommandKind.FILL_STRIDED: dma.fill_strided,
            CommandKind.STAMP: dma.stamp,
        }
        self._thread = threading.Thread(target=self._serve, name=f"core-{core}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _serve(self) -> None:
        try:
            while True:
                self.run(self._queue.next())
        except BaseException:  # noqa: BLE001
            # A core that cannot read its queue cannot go on, and half an executor helps nobody: the process
            # ends, and its client gets NRT_EXEC_UNIT_UNRECOVERABLE.
            traceback.print_exc(file=sys.stderr)
            os._exit(CORRUPT_QUEUE_EXIT)

    def run(self, command: Command) -> None:
        """Runs one command and completes it; its error, if any, is recorded for the client."""
        kind, sequence, target, inputs, operands = command
        start = time.perf_counter_ns()
        model = self.models.get(target) if kind == _EXECUTE else None
        try:
            if model is not None:
                model.run(inputs, operands)
                spent = time.perf_counter_ns() - start
                model.record(spent)
                self._queue.account(spent, model.flops)
            elif kind == _EXECUTE:
                raise NrtError(NrtStatus.INVALID_HANDLE, f"no model {target} is loaded on core {self.core}")
            else:
                self._memory_commands[kind](*operands)
        except NrtError as error:
            self._fail(sequence, model, error.status, error.detail)
        except NeuronEnvError as error:
            self._fail(sequence, model, NrtStatus.EXEC_COMPLETED_WITH_ERR, str(error))
        except MemoryError:
            self._fail(sequence, model, NrtStatus.FAIL_HOST_MEM_ALLOC, "the executor ran out of host memory")
        self._queue.complete(sequence)

    def _fail(self, sequence: int, model: LoadedModel | None, status: NrtStatus, detail: str) -> None:
        if model is not None:
            model.errors += 1
        self._queue.fail(sequence, status, detail)
