"""The scheduler: a pure state machine from events to instructions. No clock, no process, no socket.

A client's cores are its own from the grant until its executor has exited, since only then is its HBM free. So a
request for cores that are merely draining waits for them; one for cores that a live process holds is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from neuron_runtime.daemon.events import (
    ClientConnected,
    ClientGone,
    CoresRequested,
    Event,
    ExecutorExited,
    ExecutorReady,
    Grant,
    Instruction,
    KillExecutor,
    Refuse,
    Shutdown,
    SpawnExecutor,
    StopRequested,
    Tick,
)
from neuron_runtime.device.cores import CoreRequest, describe_cores
from neuron_runtime.device.instances import Machine
from neuron_runtime.status import NrtStatus

_LOG_LENGTH = 1000
_MAX_FAILED_STARTS = 3


class Phase(Enum):
    CONNECTED = "connected"  # no cores asked for yet
    QUEUED = "queued"  # waits for draining cores
    RESERVED = "reserved"  # owns cores, waits for an executor
    ATTACHED = "attached"  # owns cores and an executor
    BROKEN = "broken"  # owns cores; its executor died
    DRAINING = "draining"  # gone; its executor is being killed


_OWNERS = (Phase.RESERVED, Phase.ATTACHED, Phase.BROKEN, Phase.DRAINING)


@dataclass(slots=True)
class Client:
    """A connected process. `cores` is empty before the grant; `executor` is None unless attached or draining."""

    identity: int
    pid: int
    uid: int
    tag: str = ""
    phase: Phase = Phase.CONNECTED
    request: CoreRequest = field(default_factory=CoreRequest)
    cores: tuple[int, ...] = ()
    executor: int | None = None


class RuntimeState:
    """Only `handle` changes it. `warm` executors are kept ready; None as `idle_timeout` never stops."""

    def __init__(self, machine: Machine, *, warm: int = 1, idle_timeout: float | None = None) -> None:
        self.machine = machine
        self.clients: dict[int, Client] = {}
        self.log: deque[str] = deque(maxlen=_LOG_LENGTH)
        self.stopping = False
        self._warm = warm
        self._idle_timeout = idle_timeout
        self._idle: deque[int] = deque()  # ready, without a client
        self._starting: set[int] = set()
        self._next_executor = 1
        self._failed_starts = 0  # in a row
        self._now = 0.0
        self._last_busy = 0.0

    def start(self, now: float) -> list[Instruction]:
        """Begins, at `now` on the clock that `Tick` will carry on."""
        self._now = self._last_busy = now
        return list(self._refill())

    def handle(self, event: Event) -> list[Instruction]:
        """The instructions that `event` causes, in the order they are to be carried out."""
        instructions = list(self._handle(event))
        if not isinstance(event, Tick) or instructions:
            self.log.append(f"{self._now:.3f} {event} -> {instructions}")
        return instructions

    def owner_of(self, core: int) -> Client | None:
        for client in self.clients.values():
            if core in client.cores and client.phase in _OWNERS:
                return client
        return None

    def client_of(self, executor: int) -> Client | None:
        return next((c for c in self.clients.values() if c.executor == executor), None)

    def validate(self) -> None:
        """Raises AssertionError when an invariant is broken; tests call it after every event."""
        owned = [core for c in self.clients.values() if c.phase in _OWNERS for core in c.cores]
        assert len(owned) == len(set(owned)), f"a core has two owners: {sorted(owned)}"
        assert all(0 <= core < self.machine.core_count for core in owned)
        busy = [c.executor for c in self.clients.values() if c.executor is not None]
        assert len(busy) == len(set(busy)), "an executor serves two clients"
        assert not set(busy) & (set(self._idle) | self._starting), "a busy executor is in the pool"
        for client in self.clients.values():
            assert (client.phase in _OWNERS) == bool(client.cores), client
            attached = client.phase in (Phase.ATTACHED, Phase.DRAINING)
            assert attached == (client.executor is not None), client

    def _handle(self, event: Event) -> Iterator[Instruction]:
        match event:
            case ClientConnected(client, pid, uid):
                self.clients[client] = Client(client, pid, uid)
                self._last_busy = self._now
            case CoresRequested():
                yield from self._requested(event)
            case ClientGone(client):
                yield from self._gone(client)
            case ExecutorReady(executor, _):
                self._starting.discard(executor)
                self._failed_starts = 0
                self._idle.append(executor)
                yield from self._match()
            case ExecutorExited(executor, _):
                yield from self._exited(executor)
            case Tick(now):
                self._now = now
                yield from self._ticked()
            case StopRequested(reason):
                self.stopping = True
                yield Shutdown(reason)

    def _requested(self, event: CoresRequested) -> Iterator[Instruction]:
        client = self.clients[event.client]
        if client.phase is not Phase.CONNECTED:
            yield Refuse(client.identity, NrtStatus.INVALID, "the runtime is already initialised in this process")
            return
        client.request, client.tag = event.request, event.tag
        client.phase = Phase.QUEUED
        self._failed_starts = min(self._failed_starts, _MAX_FAILED_STARTS - 1)  # worth one more try
        yield from self._match()

    def _match(self) -> Iterator[Instruction]:
        """Serves waiting clients, oldest first, as far as cores and executors allow."""
        for client in list(self.clients.values()):
            if client.phase is Phase.QUEUED:
                yield from self._reserve(client)
            if client.phase is Phase.RESERVED and self._idle:
                client.executor = self._idle.popleft()
                client.phase = Phase.ATTACHED
                yield Grant(client.identity, client.executor, client.cores)
        yield from self._refill()

    def _reserve(self, client: Client) -> Iterator[Instruction]:
        """Gives `client` cores, leaves it queued for draining ones, or refuses it."""
        free = [c for c in range(self.machine.core_count) if self.owner_of(c) is None]
        draining = [c for o in self.clients.values() if o.phase is Phase.DRAINING for c in o.cores]
        wanted, refusal = self._wanted(client, free, draining)
        if refusal is not None:
            client.phase = Phase.CONNECTED
            yield refusal
        elif wanted is not None:
            client.cores = wanted
            client.phase = Phase.RESERVED

    def _wanted(
        self, client: Client, free: list[int], draining: list[int]
    ) -> tuple[tuple[int, ...] | None, Refuse | None]:
        """(cores, None), (None, None) to wait, or (None, refusal)."""
        total, request = self.machine.core_count, client.request
        if request.visible is not None:
            unknown = [c for c in request.visible if c >= total]
            if unknown:
                return None, Refuse(
                    client.identity,
                    NrtStatus.INVALID,
                    f"NeuronCore {describe_cores(unknown)} does not exist: {self.machine.instance.name} at LNC "
                    f"{self.machine.lnc} has cores 0-{total - 1}",
                    "set `NEURON_RT_VISIBLE_CORES` to cores that `neuron-env runtime ls` lists",
                )
            if set(request.visible) <= set(free):
                return request.visible, None
            possible = set(request.visible) <= {*free, *draining}
            named = request.visible
        else:
            count = total if request.count is None else request.count
            if count <= len(free):
                return tuple(free[:count]), None
            possible = count <= len(free) + len(draining)
            named = tuple(range(count))
        if possible:
            return None, None
        return None, Refuse(
            client.identity,
            NrtStatus.RESOURCE,
            f"NeuronCore(s) not available - Requested:nc{named[0]}-nc{named[-1]} Available:{len(free)}",
            "set `NEURON_RT_NUM_CORES` or `NEURON_RT_VISIBLE_CORES` so that processes share the cores; "
            "`neuron-env runtime ls` shows who holds them",
        )

    def _gone(self, identity: int) -> Iterator[Instruction]:
        client = self.clients.get(identity)
        if client is None or client.phase is Phase.DRAINING:
            return
        self._last_busy = self._now
        if client.executor is None:
            del self.clients[identity]
            yield from self._match()
        else:
            client.phase = Phase.DRAINING
            yield KillExecutor(client.executor)

    def _exited(self, executor: int) -> Iterator[Instruction]:
        if executor in self._starting:
            self._starting.discard(executor)
            self._failed_starts += 1
        if executor in self._idle:
            self._idle.remove(executor)
        client = self.client_of(executor)
        if client is not None and client.phase is Phase.DRAINING:
            del self.clients[client.identity]
        elif client is not None:
            client.executor = None
            client.phase = Phase.BROKEN
        if not self.stopping:
            yield from self._match()

    def _refill(self) -> Iterator[Instruction]:
        waiting = [c for c in self.clients.values() if c.phase is Phase.RESERVED]
        if self._failed_starts >= _MAX_FAILED_STARTS:
            for client in waiting:
                client.phase, client.cores = Phase.CONNECTED, ()
                yield Refuse(
                    client.identity,
                    NrtStatus.FAILURE,
                    f"no executor starts: the last {self._failed_starts} ended before they were ready",
                    "`neuron-env runtime status` names the runtime's log, which says why",
                )
            return
        while len(self._idle) + len(self._starting) < self._warm + len(waiting):
            executor, self._next_executor = self._next_executor, self._next_executor + 1
            self._starting.add(executor)
            yield SpawnExecutor(executor)

    def _ticked(self) -> Iterator[Instruction]:
        if self.clients:
            self._last_busy = self._now
        elif self._idle_timeout is not None and not self.stopping and self._now - self._last_busy >= self._idle_timeout:
            self.stopping = True
            yield Shutdown(f"no client for {self._idle_timeout:g} s")
