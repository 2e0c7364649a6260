"""What the launcher adds to a compiler that does nothing. Goals: 150 ms to a hit with 10 MB, 100 ms to a miss."""

from __future__ import annotations

import itertools
import os
import resource
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.report import in_turn, table
from cache_server.launcher import installing

ROUNDS = 15
_WORDS = ["compile", "module.mlir", "--target", "trn2", "--lnc", "2", "--output", "module.neff"]
_COMPILER = """#!/bin/sh
[ "$1" = --version ] && echo 'NeuronX Compiler version 2.28.0+1' && exit
cat "${0%/*}/result" >module.neff
"""


def main() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as name:
        for size in (100 << 10, 10 << 20):
            place = Path(name, str(size))
            run = _host(place, size)
            fresh = itertools.count()
            times = _cpu_in_turn(
                {
                    "without a launcher": lambda run=run: run("real", ""),
                    "off": lambda run=run: run("both", "NEURON_ENV_LAUNCHER"),
                    "hit": lambda run=run: run("both", ""),
                    "miss": lambda run=run, fresh=fresh: run("both", "", f"--nothing={next(fresh)}"),
                }
            )
            for kind in ("off", "hit", "miss"):
                spent = [a - b for a, b in zip(times[kind], times["without a launcher"], strict=True)]
                spent.sort()
                goal = {"hit": "150 ms", "miss": "100 ms"}.get(kind, "")
                rows.append((f"{size >> 10} KiB, {kind}", f"{spent[len(spent) // 2] * 1e3:.0f} ms", goal))
    table(("NEFF", "added, processor time", "goal <="), rows)


def _cpu_in_turn(candidates: dict[str, Callable[[], None]]) -> dict[str, list[float]]:
    """Like `in_turn`, in seconds of processor time: other work on the machine does not count."""
    clock = {name: _Clock(call) for name, call in candidates.items()}
    in_turn({name: each.time for name, each in clock.items()}, ROUNDS)
    return {name: each.seconds[-ROUNDS:] for name, each in clock.items()}


class _Clock:
    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self.seconds: list[float] = []

    def time(self) -> None:
        begun = _children()
        self._call()
        self.seconds.append(_children() - begun)


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _host(place: Path, size: int):
    work, real, launcher = place / "work", place / "real", place / "launcher"
    for directory in (work, real):
        directory.mkdir(parents=True)
    (work / "module.mlir").write_text("module {}\n")
    header = b"".join(value.to_bytes(8, "little") for value in (2, 1024, size - 1024))
    (real / "result").write_bytes(header.ljust(1024, b"\0") + os.urandom(size - 1024))
    (real / "neuronx-cc").write_text(_COMPILER)
    (real / "neuronx-cc").chmod(0o755)
    installing.install(launcher)
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("NEURON", "TORCH"))}
    plain |= {"NEURON_ENV_CACHE_URL": str(place / "store"), "NEURON_ENV_CACHE_LOCAL_DIR": str(place / "local")}
    paths = {"real": f"{real}:/usr/bin:/bin", "both": f"{launcher}:{real}:/usr/bin:/bin"}

    def run(path: str, off: str, *words: str) -> None:
        environment = {**plain, "PATH": paths[path], **({off: "off"} if off == "NEURON_ENV_LAUNCHER" else {})}
        subprocess.run(["/usr/bin/env", "neuronx-cc", *_WORDS, *words], cwd=work, env=environment, check=True)

    return run


if __name__ == "__main__":
    main()
