"""Who holds a lease, and how a neighbour on the same machine can tell that it is dead."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cache_server.fields import Fields


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that asks for leases.

    `incarnation` names the process beyond its number: the boot of its kernel, its PID namespace and its start time.
    Empty where the system does not tell; then only the lease's expiry shows that its owner is gone.
    """

    host: str
    pid: int
    user: str
    incarnation: str = ""

    @classmethod
    def here(cls) -> Owner:
        """This process."""
        return cls(os.uname().nodename, os.getpid(), _user(), _incarnation(os.getpid()))

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host} (user {self.user})"

    def is_known_dead(self) -> bool:
        """True if this host can see that the process has ended; False if it lives or if nothing can be said."""
        place, _, start = self.incarnation.rpartition("/")
        if not place or place != _place():
            return False
        return _start_time(self.pid) != start

    def to_json(self) -> dict[str, Any]:
        return {"host": self.host, "pid": self.pid, "user": self.user, "incarnation": self.incarnation}

    @classmethod
    def from_fields(cls, fields: Fields) -> Owner:
        """Raises ValueError on anything that `to_json` does not write."""
        return cls(
            host=fields.text("host", limit=300),
            pid=fields.integer("pid", low=0, high=1 << 31),
            user=fields.text("user", limit=300),
            incarnation=fields.text("incarnation", limit=200),
        )


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container's user need not be in its passwd
        return str(os.geteuid())


def _incarnation(pid: int) -> str:
    place, start = _place(), _start_time(pid)
    return f"{place}/{start}" if place and start else ""


def _place() -> str:
    """The kernel's boot and the PID namespace: where a process number means something."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115  Path.readlink would parse "pid:[…]"
    except OSError:
        return ""


def _start_time(pid: int) -> str:
    """The process's start in clock ticks since boot; empty if there is no such process, or it is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # The name in parentheses may itself hold blanks and parentheses.
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]
