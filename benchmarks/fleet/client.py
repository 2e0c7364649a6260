"""A client process of a fleet: asks a cache for keys and writes what happens, a JSON object a line.

Its one argument is a JSON object; `Crew` starts it, and says `go` on stdin. Besides our cache it can be two that
programs write for themselves: `plain` reads a shared directory and writes into it without a lock, as JAX does, and
`flock` holds a lock file over look, compile and write. Times are seconds of the machine's monotonic clock.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_current = threading.local()  # the key that a thread asks for


def tell(what: str, **values: Any) -> None:
    """One line, in one write: it is out even if the process is killed at once."""
    os.write(1, json.dumps({"what": what, "at": time.monotonic(), **values}).encode() + b"\n")


class Work:
    """What is compiled: a sleep, whose result nobody else has and which shows by itself that it is whole."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.seconds = config["seconds"]
        self._size = config["size"]
        self._fate = config.get("fate", "")  # kill or stop
        self._phase = config.get("phase", "")  # where it happens
        self._after = config.get("after", 0.0)  # seconds after that

    def compile(self) -> bytes:
        tell("compile", key=_current.key)
        time.sleep(self.seconds / 2)
        self.reach("mid-compile")
        time.sleep(self.seconds / 2)
        body = os.urandom(32) * (self._size // 32)
        return hashlib.sha256(body).digest() + body

    def reach(self, phase: str) -> None:
        tell("phase", key=_current.key, phase=phase)
        if phase == self._phase and self._fate == "kill":
            threading.Thread(target=self._die).start()
        elif phase == self._phase and self._fate == "stop":
            tell("stops")
            os.kill(os.getpid(), signal.SIGSTOP)

    def _die(self) -> None:
        time.sleep(self._after)
        tell("dies")
        os.kill(os.getpid(), signal.SIGKILL)


def is_whole(neff: bytes) -> bool:
    return hashlib.sha256(neff[32:]).digest() == neff[:32]


Ask = Callable[[str], tuple[bytes, dict[str, Any]]]


def ours(config: dict[str, Any], work: Work) -> Ask:
    from cache_server import CacheSettings, KeyParts, NeffCache
    from cache_server.leases.owner import Owner
    from cache_server.storage import open_tier

    # Compiles here cost no processor, so that slots would only hide what is measured.
    settings = CacheSettings(
        config["url"], Path(config["local"]), lease_seconds=config["lease"], compile_slots=0, budget_seconds=60.0
    )
    host = config.get("host")  # a name makes it another machine, whose processes nobody here can look at
    owner = Owner(host, os.getpid(), "bench") if host else Owner.here()
    cache = NeffCache(settings, open_tier(config["url"]), owner=owner, on_phase=lambda phase: work.reach(phase.value))

    def ask(key: str) -> tuple[bytes, dict[str, Any]]:
        parts = KeyParts.of(ir=key.encode(), compiler="cc", compiler_version="1", flags=["-O2"], target="trn2", lnc=2)
        got = cache.get_or_compile(parts, work.compile)
        return got.neff, {"outcome": got.outcome.value, "took_over": got.took_over, "fenced": cache.stats.fenced}

    return ask


def plain(config: dict[str, Any], work: Work) -> Ask:
    def ask(key: str) -> tuple[bytes, dict[str, Any]]:
        path = Path(config["url"]) / key
        if path.exists():
            return path.read_bytes(), {"outcome": "shared_hit"}
        neff = work.compile()
        if not path.exists():
            work.reach("publishing")
            path.write_bytes(neff)
        return neff, {"outcome": "compiled"}

    return ask


def flock(config: dict[str, Any], work: Work) -> Ask:
    import fcntl

    def ask(key: str) -> tuple[bytes, dict[str, Any]]:
        path = Path(config["url"]) / key
        with (Path(config["locks"]) / f"{key}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if path.exists():
                return path.read_bytes(), {"outcome": "shared_hit"}
            neff = work.compile()
            work.reach("publishing")
            staged = path.with_name(f".{key}-{os.getpid()}")
            staged.write_bytes(neff)
            staged.replace(path)
            return neff, {"outcome": "compiled"}

    return ask


def main() -> None:
    config = json.loads(sys.argv[1])
    work = Work(config)
    ask = {"ours": ours, "plain": plain, "flock": flock}[config["how"]](config, work)

    def one(key: str) -> None:
        _current.key = key
        neff, values = ask(key)
        tell("done", key=key, sha256=hashlib.sha256(neff).hexdigest(), whole=is_whole(neff), **values)

    if config.get("warm"):
        # The first request of a process imports, connects and finds out whether the store excludes.
        work.seconds = 0.0
        _current.key = f"of process {os.getpid()} on {config.get('host')}"
        ask(_current.key)
        work.seconds = config["seconds"]
    tell("ready")
    if sys.stdin.readline() != "go\n":
        return
    tell("begins")
    if not config.get("at_once"):
        for key in config["keys"]:
            one(key)
        return
    threads = [threading.Thread(target=one, args=(key,)) for key in config["keys"]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
