"""Who holds which lock file, as the kernel tells; and whether a compiler runs on this host."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from cache_server.doctor.finding import Finding, Weight

_LOCKS = Path("/proc/locks")
_BROKEN_SECONDS = 1200.0  # after which TorchNeuron's waiters take a lock for dead, by default
_COMPILER = b"neuronx-cc"

FileId = tuple[int, int, int]  # device, major and minor, and inode


def holders(table: str | None = None) -> dict[FileId, int]:
    """The process of each held lock in the kernel's table, or in the text given: 0 where it is another namespace's."""
    if table is None:
        try:
            table = _LOCKS.read_text()
        except OSError:
            return {}
    found: dict[FileId, int] = {}
    for line in table.splitlines():
        words = line.split()
        if len(words) < 6 or words[1] == "->":  # which only waits
            continue
        try:
            major, minor, inode = words[5].split(":")
            found[int(major, 16), int(minor, 16), int(inode)] = max(0, int(words[4]))
        except ValueError:
            continue
    return found


def file_id(info: os.stat_result) -> FileId:
    return os.major(info.st_dev), os.minor(info.st_dev), info.st_ino


def compilers() -> list[int]:
    """The processes of this host that run neuronx-cc, as far as this user may see."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if any(word.rpartition(b"/")[2] == _COMPILER for word in words[:3]):
                found.append(int(process.name))
    return found


def examine_locks(directory: Path) -> Iterator[Finding]:
    """TorchNeuron's locks: which are held, by whom, and for how long their files have been there."""
    held = holders()
    lasting = []
    texts = []
    for path in sorted(directory.glob("*.lock")):
        try:
            info = path.stat()
        except OSError:
            continue
        pid = held.get(file_id(info))
        if pid is None:
            continue  # a file that nobody holds is no lock: flock goes with its holder
        age = time.time() - info.st_mtime
        if age > _BROKEN_SECONDS:
            lasting.append(path)
            texts.append(f"pid {pid or 'unknown'} since {age / 60:.0f} min at most")
    if lasting:
        yield Finding(
            "old-lock", Weight.WARNING,
            f"locks that may be held for longer than waiters are patient: {len(lasting)} ({', '.join(texts[:3])})",
            tuple(lasting), "waiters break such a lock and compile as well; raise "
            "`TORCH_NEURONX_NEFF_CACHE_LOCK_TIMEOUT` if compiles take so long",
        )  # fmt: skip
