"""One request and its answer over a control socket, and how to reach a daemon."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from typing import Any

from neuron_runtime.config.layers import settings_environment
from neuron_runtime.daemon.launch import start_daemon
from neuron_runtime.protocol import datagrams
from neuron_runtime.protocol.paths import RuntimePaths
from neuron_runtime.status import NrtError, NrtStatus

_CONNECT_ATTEMPTS = 5


class ControlSocket:
    """Thread-safe request and reply. A closed peer becomes an NrtError with `lost` as its status."""

    def __init__(self, end: socket.socket, peer: str, lost: NrtStatus) -> None:
        self._end = end
        self._peer = peer
        self._lost = lost
        self._lock = threading.Lock()

    def fileno(self) -> int:
        return self._end.fileno()

    def request(self, body: dict[str, Any], fds: tuple[int, ...] = ()) -> datagrams.Datagram:
        """The peer's answer. Raises the NrtError that it carries."""
        with self._lock:
            try:
                datagrams.send(self._end, body, fds)
                answer = datagrams.receive(self._end)
            except (OSError, ValueError) as error:
                raise self.gone(error) from error
        if answer is None:
            raise self.gone()
        try:
            datagrams.raise_refusal(answer.body)
        except NrtError:
            answer.close()
            raise
        return answer

    def closed_by_peer(self) -> bool:
        """Whether the peer has hung up; does not block and consumes nothing."""
        try:
            return self._end.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def gone(self, cause: Exception | None = None) -> NrtError:
        why = f" ({cause})" if cause else ""
        return NrtError(
            self._lost,
            f"{self._peer} has ended{why}",
            hint="call `reset()` and load again; `neuron-env runtime status` names the runtime's log",
        )

    def close(self) -> None:
        self._end.close()


def connect_daemon(paths: RuntimePaths) -> ControlSocket | None:
    """None when no daemon listens."""
    try:
        end = datagrams.connect(str(paths.socket))
    except (FileNotFoundError, ConnectionRefusedError):
        return None
    except OSError as error:
        raise NrtError(
            NrtStatus.UNINITIALIZED, f"cannot connect to the runtime at {paths.socket}: {error.strerror}"
        ) from error
    return ControlSocket(end, "the runtime daemon", NrtStatus.CLOSED)


def reach_daemon(paths: RuntimePaths, environ: Mapping[str, str] | None = None) -> ControlSocket:
    """Connects, and starts a daemon first when none listens. Raises NrtError(NRT_UNINITIALIZED).

    `NEURON_ENV_RUNTIME_AUTOSTART=0` forbids the start.
    """
    environ = settings_environment() if environ is None else environ
    for _ in range(_CONNECT_ATTEMPTS):
        connection = connect_daemon(paths)
        if connection is not None:
            return connection
        if environ.get("NEURON_ENV_RUNTIME_AUTOSTART") == "0":
            break
        start_daemon(paths, environ)
    raise NrtError(
        NrtStatus.UNINITIALIZED,
        f"no runtime daemon answers at {paths.socket}",
        hint="type `neuron-env runtime start`",
    )
