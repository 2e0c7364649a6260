"""A client as the daemon's edge holds it."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Connection:
    """`arena` and `queue` are the client's memories, -1 before the grant; they live as long as the connection."""

    identity: int
    end: socket.socket
    pid: int
    uid: int
    body: dict[str, Any] = field(default_factory=dict)
    pidfd: int = -1
    arena: int = -1
    queue: int = -1
