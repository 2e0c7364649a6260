"""Shared by the cache's tests: parts of keys, caches on temporary directories, and real child processes."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cache_server import CacheSettings, KeyParts, NeffCache

WORKER = Path(__file__).with_name("cache_worker.py")
DEADLINE = 60.0  # seconds until a test gives a state up; never how long anything is expected to take


def parts(ir: str = "module {}", **changes: Any) -> KeyParts:
    given: dict[str, Any] = {
        "ir": ir.encode(),
        "compiler": "cc",
        "compiler_version": "2.0",
        "flags": ["-O2"],
        "target": "trn2",
        "lnc": 2,
    }
    return KeyParts.of(**{**given, **changes})


def open_cache(tmp: Path, host: str = "a", *, url: str | None = None, **settings: Any) -> NeffCache:
    """The cache of one "host": its own local tier, the shared store of all."""
    shared = str(tmp / "shared") if url is None else url
    settings.setdefault("compile_slots", 0)  # these compiles do nothing, and a small machine would queue them
    return NeffCache.open(settings=CacheSettings(shared, tmp / f"local-{host}", **settings))


def never() -> bytes:
    raise AssertionError("this must not compile")


@contextlib.contextmanager
def unprivileged() -> Iterator[None]:
    """Runs the body without root's right to read and write everything, where the tests run as root."""
    own = os.geteuid()
    if own != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(own)


def stopped(child: subprocess.Popen[str]) -> bool:
    """Whether SIGSTOP has reached a child."""
    pid, status = os.waitpid(child.pid, os.WUNTRACED | os.WNOHANG)
    return pid == child.pid and os.WIFSTOPPED(status)


def eventually(condition: Callable[[], Any], what: str, deadline: float = DEADLINE) -> Any:
    """Polls until `condition` is true; fails the test when `deadline` seconds have passed."""
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.005)
    raise AssertionError(f"not within {deadline} s: {what}")


@dataclass
class Fleet:
    """Child processes that share one store: the directory below `tmp`, or what `url` names."""

    tmp: Path
    url: str = ""

    def __post_init__(self) -> None:
        self.children: list[subprocess.Popen[str]] = []

    @property
    def compiles(self) -> int:
        """How many compiles were begun, in all processes."""
        journal = self.tmp / "compiles"
        return len(journal.read_text().splitlines()) if journal.exists() else 0

    def start(self, host: str, **options: Any) -> subprocess.Popen[str]:
        """A process on "host" `host` that asks for the key once `go` is called, or at once with `wait=False`."""
        config = {
            "shared": self.url or str(self.tmp / "shared"),
            "local": str(self.tmp / f"local-{host}"),
            "host": host,
            "journal": str(self.tmp / "compiles"),
            "lease": 0.8,
            **options,
        }
        child = subprocess.Popen(
            [sys.executable, str(WORKER), json.dumps(config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.children.append(child)
        return child

    def go(self, *children: subprocess.Popen[str]) -> None:
        """Lets processes ask for the key, all of them ready before the first begins."""
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()

    def result(self, child: subprocess.Popen[str]) -> dict[str, Any]:
        out, _ = child.communicate(timeout=DEADLINE)
        assert child.returncode == 0, f"exit {child.returncode}: {out}"
        value: dict[str, Any] = json.loads(out)
        return value

    def run(self, host: str, **options: Any) -> dict[str, Any]:
        child = self.start(host, **options)
        self.go(child)
        return self.result(child)

    def stop(self) -> None:
        for child in self.children:
            if child.poll() is None:
                child.kill()
            child.wait()
            for stream in (child.stdin, child.stdout):
                if stream is not None:
                    stream.close()
