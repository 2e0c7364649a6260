"""A process's hold on its NeuronCores: the daemon's grant, the executor, and a `Core` for each core in use."""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any

from neuron_runtime.client.control import ControlSocket, reach_daemon
from neuron_runtime.client.core import Core
from neuron_runtime.config.layers import settings_environment
from neuron_runtime.device.cores import CoreRequest, request_from_environment
from neuron_runtime.protocol.datagrams import PROTOCOL, Datagram
from neuron_runtime.protocol.paths import RuntimePaths, runtime_paths
from neuron_runtime.protocol.queue import QueueProducer
from neuron_runtime.status import NrtError, NrtpyError, NrtStatus

DEFAULT_EXEC_TIMEOUT_S = 600.0


class Session:
    """From `init` to `close`. Core indices count from 0 within the cores this process was granted."""

    def __init__(
        self,
        request: CoreRequest | None = None,
        *,
        paths: RuntimePaths | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """Asks for cores as `NEURON_RT_VISIBLE_CORES` or `NEURON_RT_NUM_CORES` say, unless `request` does.

        Starts the daemon when none runs. Raises NrtError: NRT_RESOURCE when the cores are taken.
        """
        environ = settings_environment() if environ is None else environ
        wanted = request_from_environment(environ) if request is None else request
        self._timeout = _exec_timeout(environ)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._cores: dict[int, Core] = {}
        self._wakes: list[int] = []
        self._retired: deque[tuple[int, int, int]] = deque()
        self._daemon, answer = _ask_for_cores(wanted, paths or runtime_paths(environ), environ)
        executor, self._arena_fd, self._queue_fd = answer.fds
        self._terms: dict[str, Any] = answer.body["granted"]
        self.executor_pid: int = answer.body["executor"]
        self._executor = ControlSocket(
            socket.socket(fileno=executor),
            f"the executor of this process (pid {self.executor_pid})",
            NrtStatus.EXEC_UNIT_UNRECOVERABLE,
        )
        self.closed = False

    @property
    def visible_cores(self) -> tuple[int, ...]:
        """Instance-wide numbers of the granted cores."""
        return tuple(self._terms["cores"])

    @property
    def target(self) -> str:
        """What the compiler must compile for: `trn2`, `trn3`."""
        return str(self._terms["target"])

    @property
    def lnc(self) -> int:
        return int(self._terms["lnc"])

    @property
    def instance_type(self) -> str:
        return str(self._terms["instance_type"])

    def core(self, index: int) -> Core:
        """Opens the core on first use. Raises NrtError(NRT_INVALID) for one that was not granted."""
        self.check()
        with self._lock:
            core = self._cores.get(index)
            if core is None:
                core = self._cores[index] = self._open(index)
            return core

    def request(self, body: dict[str, Any], fds: tuple[int, ...] = ()) -> dict[str, Any]:
        """A control request to the executor."""
        self.check()
        try:
            return self._executor.request(body, fds).body
        except NrtError as error:
            if error.status is NrtStatus.EXEC_UNIT_UNRECOVERABLE:
                self.check_peers()
            raise

    def retire(self, core_id: int, model: int, nbytes: int) -> None:
        """Notes that a model is no longer used. Safe in a finalizer: it takes no lock and sends nothing."""
        self._retired.append((core_id, model, nbytes))

    def collect(self) -> None:
        """Unloads retired models, each once the commands that may name it have ended."""
        while not self.closed and self._retired:
            core_id, model, nbytes = self._retired.popleft()
            core = self._cores[core_id]
            core.drain()
            self.request({"verb": "unload", "core": core_id, "model": model})
            core.release_model(nbytes)

    def check(self) -> None:
        """Raises NrtpyError after `close`, NrtError in a forked child."""
        if os.getpid() != self._pid:
            raise NrtError(
                NrtStatus.INVALID,
                "Cannot re-initialize Neuron runtime in forked subprocess",
                hint="start workers with the `spawn` method",
            )
        if self.closed:
            raise NrtpyError("the runtime has been closed; load the model and make the tensors again")

    def check_peers(self) -> None:
        """Raises NrtError when the daemon (NRT_CLOSED) or the executor (NRT_EXEC_UNIT_UNRECOVERABLE) has ended."""
        if self._executor.closed_by_peer():
            if self._daemon.closed_by_peer():
                raise self._daemon.gone()
            raise self._executor.gone()

    def close(self) -> None:
        """Gives cores and HBM back. Tensors and models of this session are invalid from here on."""
        if self.closed:
            return
        self.closed = True
        self._executor.close()
        self._daemon.close()
        for core in self._cores.values():
            core.close()
        for fd in (*self._wakes, self._arena_fd, self._queue_fd):
            with contextlib.suppress(OSError):
                os.close(fd)

    def _open(self, index: int) -> Core:
        cores = self.visible_cores
        if not 0 <= index < len(cores):
            raise NrtError(
                NrtStatus.INVALID,
                f"core_id {index} is out of range: this process holds {len(cores)} NeuronCore(s)",
                hint="core ids count from 0 within `NEURON_RT_VISIBLE_CORES`",
            )
        wakes = tuple(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) for _ in range(2))
        self._wakes.extend(wakes)
        queue = QueueProducer(self._queue_fd, index, *wakes)
        self.request({"verb": "open", "core": index}, wakes)
        size = int(self._terms["hbm_per_core"])
        arena = mmap.mmap(self._arena_fd, size, offset=index * size)
        return Core(cores[index], arena, queue, self.check_peers, self._timeout)


def _ask_for_cores(
    wanted: CoreRequest, paths: RuntimePaths, environ: Mapping[str, str]
) -> tuple[ControlSocket, Datagram]:
    """A daemon that was just about to stop for idleness may hang up; then the next one is asked."""
    for last in (False, False, True):
        daemon = reach_daemon(paths, environ)
        try:
            return daemon, daemon.request(
                {
                    "verb": "init",
                    "protocol": PROTOCOL,
                    "visible": list(wanted.visible) if wanted.visible is not None else None,
                    "count": wanted.count,
                    "tag": environ.get("NEURON_PROCESS_TAG", ""),
                    "allow_legacy": environ.get("NEURON_RT_ALLOW_LEGACY_NEFF") == "1",
                    "native": environ.get("NEURON_ENV_RUNTIME_NATIVE", "auto") != "never",
                }
            )
        except NrtError as error:
            daemon.close()
            if last or error.status is not NrtStatus.CLOSED:
                raise
    raise AssertionError("the last attempt returns or raises")


def _exec_timeout(environ: Mapping[str, str]) -> float:
    """`NEURON_RT_EXEC_TIMEOUT` in seconds. A simulated graph is slower than a chip's: the default is generous."""
    text = environ.get("NEURON_RT_EXEC_TIMEOUT", "").strip()
    if not text:
        return DEFAULT_EXEC_TIMEOUT_S
    if not text.isdecimal() or not int(text):
        raise NrtError(
            NrtStatus.INVALID, f"NEURON_RT_EXEC_TIMEOUT={text!r} is not valid", hint="give a positive number of seconds"
        )
    return float(text)
