"""The mounts of a host, from /proc/self/mountinfo."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from neuron_runtime.host.host import Host


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo. `options` are the mount's and the filesystem's together."""

    point: str
    filesystem: str
    source: str
    options: tuple[str, ...]


def read_mounts(host: Host) -> list[Mount]:
    """In mounting order. Raises NotFoundHere."""
    return parse_mounts(host.text("/proc/self/mountinfo"))


def parse_mounts(table: str) -> list[Mount]:
    """The lines of a mountinfo, in order; one that says too little is left out."""
    mounts = []
    for line in table.splitlines():
        before, dash, after = line.partition(" - ")
        fields, tail = before.split(), after.split()
        if not dash or len(fields) < 6 or len(tail) < 2:
            continue
        options = dict.fromkeys([*fields[5].split(","), *(tail[2].split(",") if len(tail) > 2 else [])])
        mounts.append(Mount(_plain(fields[4]), tail[0], _plain(tail[1]), tuple(options)))
    return mounts


def mount_of(mounts: list[Mount], name: str) -> Mount | None:
    """The mount that a file called `name` lies on: the deepest, and of those the one mounted last."""
    path, best = PurePosixPath(name), None
    for mount in mounts:
        if path.is_relative_to(mount.point) and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def _plain(text: str) -> str:
    """Without the octal escapes that stand for spaces and such."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
