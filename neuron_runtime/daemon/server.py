"""The daemon's edge: one loop over sockets, pidfds and signals that feeds the state machine and obeys it."""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import selectors
import signal
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

from neuron_runtime.daemon.connection import Connection
from neuron_runtime.daemon.events import (
    ClientConnected,
    ClientGone,
    CoresRequested,
    Event,
    ExecutorExited,
    Grant,
    Instruction,
    KillExecutor,
    Refuse,
    Shutdown,
    SpawnExecutor,
    StopRequested,
    Tick,
)
from neuron_runtime.daemon.executors import ExecutorPool
from neuron_runtime.daemon.reports import Reporter
from neuron_runtime.daemon.settings import DaemonSettings
from neuron_runtime.daemon.state import RuntimeState
from neuron_runtime.device.cores import CoreRequest
from neuron_runtime.protocol import datagrams
from neuron_runtime.protocol.queue import QUEUE_BYTES
from neuron_runtime.status import NrtError, NrtStatus

_LOG = logging.getLogger("neuron_runtime.daemon")
_TICK_S = 0.5


class Server:
    """Serves one listening socket until it is told to stop or has been idle for long enough."""

    def __init__(self, listener: socket.socket, settings: DaemonSettings) -> None:
        self.settings = settings
        self.connections: dict[int, Connection] = {}
        self.state = RuntimeState(settings.machine, warm=settings.warm, idle_timeout=settings.idle_timeout)
        self.pool = ExecutorPool(self._post, self._watch, self._unwatch, _LOG.warning)
        self._reporter = Reporter(settings, self.state, self.pool, self.connections, self.reply)
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._events: list[Event] = []
        self._next_client = 1
        self._running = True
        self._carry_out: dict[type[Any], Callable[[Any], None]] = {
            SpawnExecutor: lambda i: self.pool.spawn(i.executor),
            KillExecutor: lambda i: self.pool.kill(i.executor),
            Grant: self._grant,
            Refuse: self._refuse,
            Shutdown: self._shut_down,
        }

    def serve(self) -> None:
        """Returns when the daemon is to end; every executor is gone by then."""
        self._listener.setblocking(False)
        self._watch(self._listener, self._accept)
        self._watch_signals()
        self._obey(self.state.start(time.monotonic()))
        while self._running:
            for key, _ in self._selector.select(_TICK_S):
                key.data()
            now = time.monotonic()
            self._reporter.tick(now)
            self._events.append(Tick(now))
            while self._events:
                self._step(self._events.pop(0))
        self._selector.unregister(self._listener)
        self.pool.close()
        for connection in list(self.connections.values()):
            self._close(connection)

    def _watch_signals(self) -> None:
        read, write = socket.socketpair()
        read.setblocking(False)
        write.setblocking(False)
        signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        self._signal_ends = (read, write)

        def received() -> None:
            for number in read.recv(64):
                self._post(StopRequested(signal.Signals(number).name))

        self._watch(read, received)

    def _post(self, event: Event) -> None:
        self._events.append(event)

    def _watch(self, end: socket.socket | int, ready: Callable[[], None]) -> None:
        self._selector.register(end, selectors.EVENT_READ, ready)

    def _unwatch(self, end: socket.socket | int) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(end)

    def _step(self, event: Event) -> None:
        if isinstance(event, ExecutorExited):
            self._reporter.executor_exited(event.executor)
            _LOG.info("executor %d: %s", event.executor, event.how)
        self._obey(self.state.handle(event))

    def _obey(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            self._carry_out[type(instruction)](instruction)

    def _accept(self) -> None:
        try:
            end, _ = self._listener.accept()
        except OSError:
            return
        pid, uid, _ = struct.unpack("3i", end.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid not in (os.geteuid(), 0):
            _LOG.warning("refused a connection of uid %d, pid %d", uid, pid)
            end.close()
            return
        connection = Connection(self._next_client, end, pid, uid)
        self._next_client += 1
        self.connections[connection.identity] = connection
        self._watch(end, lambda: self._from_client(connection))
        self._post(ClientConnected(connection.identity, pid, uid))

    def _from_client(self, connection: Connection) -> None:
        try:
            message = datagrams.receive(connection.end)
        except (OSError, NrtError) as error:
            _LOG.warning("client %d (pid %d): %s", connection.identity, connection.pid, error)
            message = None
        if message is None:
            self._lost(connection)
            return
        message.close()
        try:
            self._answer(connection, message.body)
        except NrtError as error:
            self.reply(connection, datagrams.refusal(error))

    def _answer(self, connection: Connection, body: dict[str, Any]) -> None:
        if body.get("protocol") != datagrams.PROTOCOL:
            raise NrtError(
                NrtStatus.INVALID,
                f"the client speaks protocol {body.get('protocol')!r}, the runtime {datagrams.PROTOCOL}",
                hint="stop the runtime with `neuron-env runtime stop`; the next client starts a fresh one",
            )
        verb = body.get("verb")
        if verb == "init":
            connection.body = body
            request = _core_request(body)
            self._watch_process(connection)
            self._post(CoresRequested(connection.identity, request, str(body.get("tag") or "")[:255]))
        elif verb == "stop":
            self.reply(connection, {"stopping": os.getpid()})
            self._post(StopRequested(f"asked by pid {connection.pid}"))
        else:
            self._reporter.answer(connection, str(verb))

    def reply(self, connection: Connection, body: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        """Sends to a client; one that has gone meanwhile is treated as gone."""
        try:
            datagrams.send(connection.end, body, fds)
        except OSError:
            self._lost(connection)

    def _watch_process(self, connection: Connection) -> None:
        """A forked child may keep the socket open, so the process itself is watched too.

        A client in another PID namespace has pid 0 here: its socket alone tells.
        """
        if connection.pid > 0 and connection.pidfd < 0:
            try:
                connection.pidfd = os.pidfd_open(connection.pid)
            except OSError:
                return
            self._watch(connection.pidfd, lambda: self._lost(connection))

    def _lost(self, connection: Connection) -> None:
        self._close(connection)
        self._post(ClientGone(connection.identity))

    def _close(self, connection: Connection) -> None:
        if self.connections.pop(connection.identity, None) is None:
            return
        self._unwatch(connection.end)
        connection.end.close()
        if connection.pidfd >= 0:
            self._unwatch(connection.pidfd)
        for fd in (connection.pidfd, connection.arena, connection.queue):
            if fd >= 0:
                os.close(fd)

    def _grant(self, grant: Grant) -> None:
        connection = self.connections.get(grant.client)
        if connection is None:
            return  # gone meanwhile; its ClientGone, still queued, returns the cores
        machine = self.settings.machine
        count = len(grant.cores)
        connection.arena = _memory(f"neuron-hbm-{connection.identity}", machine.hbm_per_core * count)
        connection.queue = _memory(f"neuron-queue-{connection.identity}", QUEUE_BYTES * count)
        terms = {
            "cores": list(grant.cores),
            "hbm_per_core": machine.hbm_per_core,
            "instance_type": machine.instance.name,
            "target": machine.instance.target,
            "lnc": machine.lnc,
        }
        mine, theirs = datagrams.socketpair()
        with mine, theirs:
            self.pool.attach(
                grant.executor,
                terms
                | {
                    "native": self.settings.native and bool(connection.body.get("native", True)),
                    "allow_legacy": bool(connection.body.get("allow_legacy", False)),
                },
                (mine.fileno(), connection.arena, connection.queue),
            )
            self.reply(
                connection,
                {"granted": terms, "daemon": os.getpid(), "executor": self.pool.pid(grant.executor)},
                (theirs.fileno(), connection.arena, connection.queue),
            )
        _LOG.info("pid %d has cores %s, executor pid %d", connection.pid, grant.cores, self.pool.pid(grant.executor))

    def _refuse(self, refuse: Refuse) -> None:
        connection = self.connections.get(refuse.client)
        if connection is not None:
            self.reply(connection, datagrams.refusal(NrtError(refuse.status, refuse.detail, hint=refuse.hint)))

    def _shut_down(self, shutdown: Shutdown) -> None:
        _LOG.info("stopping: %s", shutdown.reason)
        self._running = False


def _core_request(body: dict[str, Any]) -> CoreRequest:
    visible, count = body.get("visible"), body.get("count")
    if visible is not None:
        if not isinstance(visible, list) or not visible or not all(isinstance(c, int) and c >= 0 for c in visible):
            raise NrtError(NrtStatus.INVALID, f"visible cores must be a list of natural numbers, not {visible!r}")
        return CoreRequest(visible=tuple(visible))
    if count is not None and (not isinstance(count, int) or count < 1):
        raise NrtError(NrtStatus.INVALID, f"the core count must be a positive number, not {count!r}")
    return CoreRequest(count=count)


def _memory(name: str, size: int) -> int:
    """A sealed-size memfd: sparse, so a core's 24 GiB cost only the pages that are touched."""
    import fcntl

    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE)
    # Neither side may shrink the other's mapping from under it: that would end it with SIGBUS.
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return fd
