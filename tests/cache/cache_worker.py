"""A process that asks the cache for one key, and can be told to die or stop at a given step."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from cache_server import CacheSettings, KeyParts, NeffCache
from cache_server.backends.posix import PosixBackend
from cache_server.leases.owner import Owner
from cache_server.leases.posix import PosixRecords
from cache_server.permissions import permissions_named
from cache_server.storage import Storage, open_tier
from cache_server.store import LAYOUT, Store


class DyingBackend(PosixBackend):
    """Dies with a complete file staged, just before the file gets its name."""

    def __init__(self, root: Path, where: str, times: int) -> None:
        super().__init__(root, permissions_named("group"))
        self._where = where
        self._left = times

    def write(self, path: str, data: bytes) -> None:
        with self.staged(data):
            self._die(path)
        super().write(path, data)

    def link(self, staged: Path, path: str) -> bool:
        self._die(path)
        return super().link(staged, path)

    def _die(self, path: str) -> None:
        if self._where and path.startswith(self._where):
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def main(config: dict[str, Any]) -> None:
    dies_at = config.get("dies_at", "")
    stops_at = config.get("stops_at", "")
    staged, _, times = dies_at.removeprefix("staged:").partition("#") if "staged:" in dies_at else ("", "", "")

    def reach(step: str) -> None:
        if step == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if step == stops_at:
            os.kill(os.getpid(), signal.SIGSTOP)

    def compile_it() -> bytes:
        with Path(config["journal"]).open("a") as journal:
            journal.write(f"{os.getpid()}\n")
        time.sleep(config.get("seconds", 0.0) / 2)
        reach("mid-compile")
        time.sleep(config.get("seconds", 0.0) / 2)
        return os.urandom(config.get("size", 100_000))

    settings = CacheSettings(
        config["shared"],
        Path(config["local"]),
        lease_seconds=config["lease"],
        wait_seconds=config.get("wait", 60.0),
        budget_seconds=config.get("budget", 60.0),  # a busy machine is no fault
        compile_slots=0,  # these compiles only sleep, and a small machine would queue them
    )
    if "://" in config["shared"]:
        storage = open_tier(config["shared"])
    else:
        backend = DyingBackend(Path(config["shared"]) / LAYOUT, staged, int(times or 1))
        storage = Storage(Store(backend), PosixRecords(backend))
    owner = Owner.here() if config.get("real_host") else Owner(config["host"], os.getpid(), "tester")
    seen: list[dict[str, Any]] = []
    cache = NeffCache(
        settings,
        storage,
        owner=owner,
        progress=lambda waiting: seen.append({"owner": waiting.owner, "phase": waiting.phase}),
        on_phase=lambda phase: reach(phase.value),
    )
    parts = KeyParts.of(
        ir=config.get("ir", "module {}").encode(),
        compiler="cc",
        compiler_version="2.0",
        flags=["-O2"],
        target="trn2",
        lnc=2,
    )
    print("ready", flush=True)
    sys.stdin.readline()
    begun = time.monotonic()
    result = cache.get_or_compile(parts, compile_it, label="the graph")
    json.dump(
        {
            "outcome": result.outcome.value,
            "sha256": hashlib.sha256(result.neff).hexdigest(),
            "epoch": result.epoch,
            "took_over": result.took_over,
            "waited": result.waited_seconds,
            "waited_for": result.waited_for,
            "reason": result.reason,
            "took": time.monotonic() - begun,
            "progress": seen,
            "stats": cache.stats.to_json(),
        },
        sys.stdout,
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
