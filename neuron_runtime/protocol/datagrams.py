"""Control messages: one JSON object a datagram over a Unix SEQPACKET socket, with file descriptors beside it.

Nothing here is on the hot path; work travels through the shared queue (`queue.py`).
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
from dataclasses import dataclass, field
from typing import Any

from neuron_runtime.status import NrtError, NrtStatus

PROTOCOL = 1
MAX_BYTES = 1 << 20
MAX_FDS = 8


@dataclass(frozen=True, slots=True)
class Datagram:
    """A received message; whoever receives it owns its descriptors."""

    body: dict[str, Any]
    fds: tuple[int, ...] = field(default=())

    def close(self) -> None:
        for fd in self.fds:
            with contextlib.suppress(OSError):
                os.close(fd)


def socketpair() -> tuple[socket.socket, socket.socket]:
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (left, right):
        _roomy(end)
    return left, right


def _roomy(end: socket.socket) -> None:
    # A datagram must fit the sender's buffer whole; a large graph's tensor list needs more than the default.
    end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MAX_BYTES)


def send(end: socket.socket, body: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
    """Raises OSError when the peer is gone, ValueError when the message is larger than a datagram may be."""
    data = json.dumps(body, separators=(",", ":")).encode()
    if len(data) > MAX_BYTES:
        raise ValueError(f"a control message of {len(data)} bytes is over the limit of {MAX_BYTES}")
    if fds:
        socket.send_fds(end, [data], list(fds), socket.MSG_NOSIGNAL)
    else:
        end.send(data, socket.MSG_NOSIGNAL)


def receive(end: socket.socket) -> Datagram | None:
    """The next message; None when the peer has closed. Raises NrtError(NRT_INVALID) for a malformed one."""
    int_size = array.array("i").itemsize
    data, ancillary, flags, _ = end.recvmsg(MAX_BYTES, socket.CMSG_LEN(MAX_FDS * int_size), socket.MSG_CMSG_CLOEXEC)
    fds: list[int] = []
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers = array.array("i")
            numbers.frombytes(payload[: len(payload) - len(payload) % int_size])
            fds.extend(numbers)
    if not data:
        Datagram({}, tuple(fds)).close()
        return None
    try:
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise ValueError("truncated")
        body = json.loads(data)
        if not isinstance(body, dict):
            raise TypeError("not an object")
    except (ValueError, TypeError, RecursionError) as error:
        Datagram({}, tuple(fds)).close()
        raise NrtError(NrtStatus.INVALID, f"malformed control message: {error}") from error
    return Datagram(body, tuple(fds))


def connect(path: str) -> socket.socket:
    """Raises OSError (FileNotFoundError, ConnectionRefusedError) when nobody listens."""
    end = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        _roomy(end)
        end.connect(path)
    except OSError:
        end.close()
        raise
    return end


def refusal(error: NrtError) -> dict[str, Any]:
    """How an error crosses the socket; `raise_refusal` is its other half."""
    return {"error": {"status": int(error.status), "detail": error.detail, "hint": error.hint}}


def raise_refusal(body: dict[str, Any]) -> None:
    """Raises the NrtError that `body` carries, if it carries one."""
    error = body.get("error")
    if error is None:
        return
    try:
        status = NrtStatus(error["status"])
    except ValueError:
        status = NrtStatus.FAILURE
    raise NrtError(status, str(error["detail"]), hint=error.get("hint"))
