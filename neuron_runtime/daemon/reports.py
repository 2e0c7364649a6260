"""Answers questions about the runtime: one snapshot document, from which `ls`, `top` and `monitor` are made."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neuron_runtime.daemon.connection import Connection
from neuron_runtime.daemon.executors import ExecutorPool
from neuron_runtime.daemon.settings import DaemonSettings
from neuron_runtime.daemon.state import Client, RuntimeState
from neuron_runtime.protocol.queue import read_counters
from neuron_runtime.status import NrtError, NrtStatus
from neuron_runtime.version import RUNTIME_VERSION

ANSWER_WITHIN_S = 2.0


@dataclass(slots=True)
class _Question:
    """A snapshot waiting for executors' statistics; it is answered without those that miss the deadline."""

    connection: Connection
    deadline: float
    pending: set[int]
    answers: dict[int, dict[str, Any]] = field(default_factory=dict)


class Reporter:
    """Serves the `snapshot` verb. Executors are asked side by side; a hung one delays nobody for long."""

    def __init__(
        self,
        settings: DaemonSettings,
        state: RuntimeState,
        pool: ExecutorPool,
        connections: Mapping[int, Connection],
        reply: Callable[[Connection, dict[str, Any]], None],
    ) -> None:
        self._settings, self._state, self._pool = settings, state, pool
        self._connections, self._reply = connections, reply
        self._questions: dict[int, _Question] = {}
        self._next = 1
        self._started = time.time()
        pool.on_statistics(self._received)

    def answer(self, connection: Connection, verb: str) -> None:
        """Replies now or later. Raises NrtError(NRT_INVALID) for an unknown verb."""
        if verb != "snapshot":
            raise NrtError(NrtStatus.INVALID, f"unknown verb {verb!r}")
        number, self._next = self._next, self._next + 1
        question = _Question(connection, time.monotonic() + ANSWER_WITHIN_S, set())
        self._questions[number] = question
        for client in self._state.clients.values():
            if client.executor is not None and self._pool.ask_statistics(client.executor, number):
                question.pending.add(client.executor)
        self._finish(number)

    def tick(self, now: float) -> None:
        for number, question in list(self._questions.items()):
            if now >= question.deadline:
                question.pending.clear()
                self._finish(number)

    def executor_exited(self, executor: int) -> None:
        for number, question in list(self._questions.items()):
            if executor in question.pending:
                question.pending.discard(executor)
                self._finish(number)

    def _received(self, number: int, executor: int, body: dict[str, Any]) -> None:
        question = self._questions.get(number)
        if question is not None:
            question.pending.discard(executor)
            question.answers[executor] = body
            self._finish(number)

    def _finish(self, number: int) -> None:
        question = self._questions[number]
        if question.pending:
            return
        del self._questions[number]
        self._reply(question.connection, self._snapshot(question.answers))

    def _snapshot(self, answers: dict[int, dict[str, Any]]) -> dict[str, Any]:
        machine = self._settings.machine
        return {
            "runtime_version": RUNTIME_VERSION,
            "simulated": True,
            "time": time.time(),
            "started": self._started,
            "pid": os.getpid(),
            "instance_type": machine.instance.name,
            "lnc": machine.lnc,
            "native": self._settings.native,
            "idle_timeout": self._settings.idle_timeout,
            "processes": [
                self._process(client, answers.get(client.executor or -1, {}))
                for client in self._state.clients.values()
                if client.cores
            ],
        }

    def _process(self, client: Client, statistics: dict[str, Any]) -> dict[str, Any]:
        connection = self._connections.get(client.identity)
        cores: dict[str, dict[str, int]] = {}
        if connection is not None and connection.queue >= 0:
            for index, core in enumerate(client.cores):
                counters = read_counters(connection.queue, index)
                cores[str(core)] = {name: getattr(counters, name) for name in counters.__dataclass_fields__}
        return {
            "pid": client.pid,
            "tag": client.tag,
            "command": _command_of(client.pid),
            "phase": client.phase.value,
            "executor": self._pool.pid(client.executor) if client.executor is not None else 0,
            "cores": cores,
            "models": statistics.get("models", []),
            "latency": statistics.get("latency"),
            "native_loads": statistics.get("native_loads", 0),
            "compiled_loads": statistics.get("compiled_loads", 0),
        }


def _command_of(pid: int) -> str:
    """The process's command line; empty when it cannot be seen."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return raw.replace(b"\0", b" ").decode(errors="replace").strip()[:512]
