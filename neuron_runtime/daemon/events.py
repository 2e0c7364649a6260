"""What can happen to the daemon, and what it can decide to do: the vocabulary of the state machine."""

from __future__ import annotations

from dataclasses import dataclass

from neuron_runtime.device.cores import CoreRequest
from neuron_runtime.status import NrtStatus


@dataclass(frozen=True, slots=True)
class ClientConnected:
    client: int
    pid: int
    uid: int


@dataclass(frozen=True, slots=True)
class CoresRequested:
    """The client's one `init`; `tag` is its NEURON_PROCESS_TAG."""

    client: int
    request: CoreRequest
    tag: str = ""


@dataclass(frozen=True, slots=True)
class ClientGone:
    """It closed its socket, or its process ended."""

    client: int


@dataclass(frozen=True, slots=True)
class ExecutorReady:
    executor: int
    pid: int


@dataclass(frozen=True, slots=True)
class ExecutorExited:
    executor: int
    how: str


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passes; `now` in seconds on a monotonic clock."""

    now: float


@dataclass(frozen=True, slots=True)
class StopRequested:
    reason: str


Event = ClientConnected | CoresRequested | ClientGone | ExecutorReady | ExecutorExited | Tick | StopRequested


@dataclass(frozen=True, slots=True)
class SpawnExecutor:
    executor: int


@dataclass(frozen=True, slots=True)
class KillExecutor:
    executor: int


@dataclass(frozen=True, slots=True)
class Grant:
    """Attach `executor` to `client` with these logical cores."""

    client: int
    executor: int
    cores: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Refuse:
    client: int
    status: NrtStatus
    detail: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Shutdown:
    reason: str


Instruction = SpawnExecutor | KillExecutor | Grant | Refuse | Shutdown
