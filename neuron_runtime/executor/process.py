"""The executor process: attached to one client by the daemon, it loads and unloads NEFFs and answers for them.

Its life hangs on two sockets. When the daemon's or the client's closes, the process ends at once, and the
kernel takes back the HBM it had mapped.
"""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import select
import socket
import sys
from typing import Any

from neuron_runtime.errors import NeuronEnvError
from neuron_runtime.executor.core import CoreWorker
from neuron_runtime.executor.models import LoadedModel, LoadPolicy, load_model, percentiles
from neuron_runtime.protocol import datagrams
from neuron_runtime.protocol.queue import QueueConsumer
from neuron_runtime.status import NrtError, NrtStatus
from neuron_runtime.xla import Xla

MAX_NEFF_BYTES = 64 << 30


class Executor:
    """Serves one client. Control messages are handled on this thread; each open core has a thread of its own."""

    def __init__(self, daemon: socket.socket) -> None:
        self._daemon = daemon
        self._client: socket.socket | None = None
        self._xla = Xla()
        self._workers: dict[int, CoreWorker] = {}
        self._cores: list[int] = []
        self._hbm_per_core = 0
        self._arena_fd = self._queue_fd = -1
        self._policy = LoadPolicy("trn2", 2, native=True, allow_legacy=False)
        self._next_model = 1
        self._native_loads = self._compiled_loads = 0

    def serve(self) -> None:
        """Until the daemon or the client closes its socket."""
        self._xla.start()
        datagrams.send(self._daemon, {"ready": os.getpid()})
        poller = select.poll()
        poller.register(self._daemon, select.POLLIN)
        while True:
            for fd, _ in poller.poll():
                if fd == self._daemon.fileno():
                    message = datagrams.receive(self._daemon)
                    if message is None:
                        return
                    self._from_daemon(message)
                    if self._client is not None:
                        poller.register(self._client, select.POLLIN)
                elif self._client is not None and not self._serve_client(self._client):
                    return

    def _from_daemon(self, message: datagrams.Datagram) -> None:
        if "attach" in message.body:
            self._attach(message)
        elif "statistics" in message.body:
            datagrams.send(self._daemon, {"statistics": message.body["statistics"], **self._statistics()})

    def _attach(self, message: datagrams.Datagram) -> None:
        client_fd, self._arena_fd, self._queue_fd = message.fds
        body = message.body["attach"]
        self._cores = list(body["cores"])
        self._hbm_per_core = body["hbm_per_core"]
        self._policy = LoadPolicy(body["target"], body["lnc"], native=body["native"], allow_legacy=body["allow_legacy"])
        self._client = socket.socket(fileno=client_fd)

    def _serve_client(self, client: socket.socket) -> bool:
        request = datagrams.receive(client)
        if request is None:
            return False
        verbs = {"open": self._open, "load": self._load, "unload": self._unload}
        try:
            verb = verbs.get(str(request.body.get("verb")))
            if verb is None:
                raise NrtError(NrtStatus.INVALID, f"unknown verb {request.body.get('verb')!r}")
            reply = verb(request)
        except NrtError as error:
            reply = datagrams.refusal(error)
        except NeuronEnvError as error:
            reply = datagrams.refusal(NrtError(NrtStatus.FAILURE, str(error), hint=error.hint))
        except MemoryError:
            reply = datagrams.refusal(NrtError(NrtStatus.FAIL_HOST_MEM_ALLOC, "the executor ran out of host memory"))
        finally:
            request.close()
        datagrams.send(client, reply)
        return True

    def _open(self, request: datagrams.Datagram) -> dict[str, Any]:
        """Maps one core's HBM and queue and starts its thread. Descriptors: wake executor, wake client."""
        index = self._index(request)
        if index not in self._workers:
            arena = mmap.mmap(self._arena_fd, self._hbm_per_core, offset=index * self._hbm_per_core)
            wake_executor, wake_client = (os.dup(fd) for fd in request.fds)
            queue = QueueConsumer(self._queue_fd, index, wake_executor, wake_client)
            worker = self._workers[index] = CoreWorker(self._cores[index], arena, queue)
            worker.start()
        return {"opened": self._cores[index]}

    def _load(self, request: datagrams.Datagram) -> dict[str, Any]:
        """Loads the NEFF in the one descriptor sent along."""
        worker = self._worker(request)
        (fd,) = request.fds
        size = os.fstat(fd).st_size
        if not 0 < size <= MAX_NEFF_BYTES:
            raise NrtError(NrtStatus.INVALID, f"a NEFF of {size} bytes cannot be loaded")
        with mmap.mmap(fd, size, access=mmap.ACCESS_READ) as data:
            model = load_model(
                bytes(data),
                identity=self._next_model,
                name=str(request.body.get("name") or f"model-{self._next_model}"),
                core=worker.core,
                arena=worker.arena,
                xla=self._xla,
                policy=self._policy,
            )
        self._next_model += 1
        if model.native:
            self._native_loads += 1
        else:
            self._compiled_loads += 1
        worker.models[model.identity] = model
        return {
            "model": model.identity,
            "native": model.native,
            "code_bytes": model.code_bytes,
            "scratch_bytes": model.scratch_bytes,
            "seconds": model.load_seconds,
        }

    def _unload(self, request: datagrams.Datagram) -> dict[str, Any]:
        """The client has drained the core first, so no command names the model any more."""
        worker = self._worker(request)
        model = worker.models.pop(int(request.body["model"]), None)
        if model is None:
            raise NrtError(NrtStatus.INVALID_HANDLE, f"no model {request.body['model']} is loaded")
        return {"unloaded": model.identity}

    def _index(self, request: datagrams.Datagram) -> int:
        index = request.body.get("core")
        if not isinstance(index, int) or not 0 <= index < len(self._cores):
            raise NrtError(NrtStatus.INVALID, f"core {index!r} is not one of this client's")
        return index

    def _worker(self, request: datagrams.Datagram) -> CoreWorker:
        worker = self._workers.get(self._index(request))
        if worker is None:
            raise NrtError(NrtStatus.INVALID, "the core has not been opened")
        return worker

    def _statistics(self) -> dict[str, Any]:
        models: list[LoadedModel] = [m for w in list(self._workers.values()) for m in list(w.models.values())]
        samples = [ns for m in models for ns in list(m.recent_ns)]
        return {
            "models": [m.statistics() for m in models],
            "latency": percentiles(samples),
            "native_loads": self._native_loads,
            "compiled_loads": self._compiled_loads,
        }


def run_executor(daemon: socket.socket) -> None:
    """The body of a forked executor; never returns."""
    code = 0
    try:
        # Core threads spin for at most a tenth of a millisecond; the control thread must not wait longer.
        sys.setswitchinterval(2e-4)
        # Executions make no cycles; looking for them every few hundred would cost a tenth of a small one.
        gc.set_threshold(50_000, 20, 100)
        Executor(daemon).serve()
    except (BrokenPipeError, ConnectionResetError):
        pass
    except BaseException as error:  # noqa: BLE001 - the last handler of a forked process
        with contextlib.suppress(OSError):
            print(f"executor {os.getpid()}: {error!r}", file=sys.stderr, flush=True)  # noqa: T201
        code = 1
    os._exit(code)
