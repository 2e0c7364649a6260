"""The cache of libneuronxla: locks that nobody holds any more, and failures that stand in the way of a compile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from cache_server.doctor.finding import Finding, Weight
from cache_server.doctor.locks import compilers, file_id, holders
from cache_server.launcher.verdict import judge
from cache_server.transfer.neuronxla import DONE, LOCK_ENDING, LOG, NEFF
from neuron_runtime.compiler.errors import FailureKind

_STALE_SECONDS = 600.0
_TAIL = 64 << 10  # bytes of a log that are read
_FAILED = 70  # what the compiler ends with; a log does not say


def examine_legacy(root: Path, *, shared: bool, clear_all: bool = False) -> Iterator[Finding]:
    """What is wrong below `root`. `shared`: other hosts use it too, so that no lock is known to be dead.

    Failures that are the host's are to be mended; with `clear_all` those of the program as well.
    """
    held, alive = holders(), compilers()
    stale: list[Path] = []
    unsure: list[Path] = []
    failed: dict[FailureKind, list[tuple[Path, str]]] = {}
    half: list[Path] = []
    for module in sorted(root.glob("neuronxcc-*/MODULE_*")):
        names = {file.name for file in module.iterdir()} if module.is_dir() else set()
        locks = [module / name for name in names if name.endswith(LOCK_ENDING)]
        for lock in locks:
            if _age(lock) > _STALE_SECONDS and not _is_held(lock, held):
                (unsure if shared or alive else stale).append(lock)
        if LOG in names and NEFF not in names and not locks:
            text = _tail(module / LOG)
            failed.setdefault(judge(_FAILED, text).kind, []).append((module / LOG, text))
        if NEFF in names and DONE not in names and not locks:
            half.append(module)

    def unlock(path: Path) -> bool:
        if _age(path) <= _STALE_SECONDS or _is_held(path, holders()) or compilers():
            return False
        path.unlink()
        return True

    if stale:
        yield Finding(
            "stale-lock", Weight.ERROR,
            f"locks that nobody holds while no compiler runs here: {len(stale)}, the oldest for {_oldest(stale)}",
            tuple(stale), "every job waits for them; `--fix` removes them", unlock,
        )  # fmt: skip
    if unsure:
        who = "other hosts may hold them" if shared else f"a compiler runs here (pid {alive[0]})"
        yield Finding(
            "lock", Weight.WARNING, f"locks that are old: {len(unsure)}, for {_oldest(unsure)} at most; {who}",
            tuple(unsure), "remove them only when no host compiles",
        )  # fmt: skip
    for kind, logs in failed.items():
        last = next((line for line in reversed(logs[0][1].splitlines()) if line.strip()), "no text").strip()[:200]
        ours = kind is not FailureKind.COMPILER_ERROR
        yield Finding(
            f"failed-{kind.value.replace('_', '-')}", Weight.ERROR if ours else Weight.NOTE,
            f"compiles remembered as failed ({kind.value.replace('_', ' ')}): {len(logs)}; {last}",
            tuple(path for path, _ in logs),
            f"`--fix{'' if ours else ' --clear-compiler-errors'}` lets them be compiled again",
            _forget if ours or clear_all else None,
        )  # fmt: skip
    if half:
        yield Finding(
            "unfinished", Weight.WARNING, f"NEFFs without the mark that their compile ended: {len(half)}", tuple(half),
            "they are compiled again",
        )  # fmt: skip


def _is_held(lock: Path, held: dict[tuple[int, int, int], int]) -> bool:
    try:
        return file_id(lock.stat()) in held
    except OSError:
        return False


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0


def _oldest(paths: list[Path]) -> str:
    return f"{max(map(_age, paths)) / 3600:.1f} h"


def _tail(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL))
            return file.read().decode(errors="replace")
    except OSError as error:
        return f"its log cannot be read: {error.strerror}"


def _forget(log: Path) -> bool:
    """A module with its graph alone is one that nobody has compiled yet."""
    if (log.parent / NEFF).exists():
        return False
    log.unlink()
    return True
