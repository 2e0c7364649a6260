"""The executors as the daemon holds them: sockets to the zygote and to each executor it has forked."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from neuron_runtime.daemon.events import ExecutorExited, ExecutorReady
from neuron_runtime.protocol import datagrams

Post = Callable[[ExecutorReady | ExecutorExited], None]


@dataclass(slots=True)
class ExecutorHandle:
    """One executor: `pid` is 0 until the zygote has forked it; `how` says how it ended, once known."""

    identity: int
    end: socket.socket
    pid: int = 0
    how: str = ""
    doomed: bool = False


class ExecutorPool:
    """Starts the zygote, asks it for executors, and reports `ExecutorReady` and `ExecutorExited`.

    `watch` and `unwatch` register a socket with the daemon's loop.
    """

    def __init__(
        self,
        post: Post,
        watch: Callable[[socket.socket, Callable[[], None]], None],
        unwatch: Callable[[socket.socket], None],
        log: Callable[[str], None],
    ) -> None:
        self._post, self._watch, self._unwatch, self._log = post, watch, unwatch, log
        self._handles: dict[int, ExecutorHandle] = {}
        self._zygote: subprocess.Popen[bytes] | None = None
        self._zygote_end: socket.socket | None = None
        self._statistics: Callable[[int, int, dict[str, Any]], None] = lambda *_: None

    def on_statistics(self, receive: Callable[[int, int, dict[str, Any]], None]) -> None:
        """`receive(question, executor, answer)` is called for each answer to `ask_statistics`."""
        self._statistics = receive

    def spawn(self, identity: int) -> None:
        """Asks for an executor; its readiness, or its exit, is posted later."""
        mine, theirs = datagrams.socketpair()
        handle = self._handles[identity] = ExecutorHandle(identity, mine)
        self._watch(mine, lambda: self._from_executor(handle))
        with theirs:
            try:
                datagrams.send(self._zygote_socket(), {"spawn": identity}, (theirs.fileno(),))
            except OSError as error:
                handle.how = f"the zygote is gone: {error}"

    def attach(self, identity: int, body: dict[str, Any], fds: tuple[int, ...]) -> None:
        with contextlib.suppress(OSError):  # its exit is posted when its socket closes
            datagrams.send(self._handles[identity].end, {"attach": body}, fds)

    def ask_statistics(self, identity: int, question: int) -> bool:
        handle = self._handles.get(identity)
        if handle is None:
            return False
        try:
            datagrams.send(handle.end, {"statistics": question})
        except OSError:
            return False
        return True

    def kill(self, identity: int) -> None:
        """SIGKILL: an executor may be deep in a long execution and owes nobody a farewell."""
        handle = self._handles.get(identity)
        if handle is None:
            return
        handle.doomed = True
        if handle.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(handle.pid, signal.SIGKILL)

    def pid(self, identity: int) -> int:
        handle = self._handles.get(identity)
        return handle.pid if handle else 0

    def close(self) -> None:
        """Kills every executor, then the zygote, and waits for the zygote."""
        for identity in list(self._handles):
            self.kill(identity)
        if self._zygote_end is not None:
            self._unwatch(self._zygote_end)
            self._zygote_end.close()
        if self._zygote is not None:
            try:
                self._zygote.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._zygote.kill()
                self._zygote.wait()

    def _zygote_socket(self) -> socket.socket:
        if self._zygote_end is None:
            mine, theirs = datagrams.socketpair()
            with theirs:
                self._zygote = subprocess.Popen(
                    [
                        sys.executable,
                        "-m",
                        "neuron_runtime.executor.zygote",
                        str(theirs.fileno()),
                        str(os.getpid()),
                    ],
                    pass_fds=(theirs.fileno(),),
                    stdin=subprocess.DEVNULL,
                )
            self._zygote_end = mine
            self._watch(mine, self._from_zygote)
        return self._zygote_end

    def _from_zygote(self) -> None:
        end = self._zygote_end
        assert end is not None
        try:
            message = datagrams.receive(end)
        except OSError:
            message = None
        if message is None:
            self._zygote_lost(end)
        elif "spawned" in message.body:
            handle = self._handles.get(message.body["spawned"])
            if handle is not None:
                handle.pid = message.body["pid"]
                if handle.doomed:
                    self.kill(handle.identity)
        elif "exited" in message.body:
            for handle in self._handles.values():
                if handle.pid == message.body["exited"]:
                    handle.how = _describe_exit(message.body["code"])

    def _zygote_lost(self, end: socket.socket) -> None:
        """Its executors die with it, and each posts its own exit; the next spawn starts another zygote."""
        self._unwatch(end)
        end.close()
        self._zygote_end = None
        if self._zygote is not None:
            self._log(f"zygote ended: {_describe_exit(self._zygote.wait())}")
            self._zygote = None

    def _from_executor(self, handle: ExecutorHandle) -> None:
        try:
            message = datagrams.receive(handle.end)
        except OSError:
            message = None
        if message is None:
            self._unwatch(handle.end)
            handle.end.close()
            del self._handles[handle.identity]
            self._post(ExecutorExited(handle.identity, handle.how or "ended"))
        elif "ready" in message.body:
            handle.pid = message.body["ready"]
            self._post(ExecutorReady(handle.identity, handle.pid))
        elif "statistics" in message.body:
            self._statistics(message.body["statistics"], handle.identity, message.body)


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
