"""What a bad network costs a job (B5): extra seconds a compile, and how often the NEFF was right.

Goals: every job finishes with the right bytes; once the breaker is open a new key costs at most 50 ms.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.report import table
from cache_server import CacheSettings, KeyParts, NeffCache
from cache_server.remote.options import RemoteOptions
from cache_server.remote.service import Service
from cache_server.remote.store import RemoteStore
from cache_server.remote.tier import RemoteTier

FAULTS = ("none", "delay:0.05", "delay:3", "truncate", "flip", "reset", "headers", "lose", "status:500", "status:503",
          "status:429", "stall")  # fmt: skip
PROXY = Path(__file__).parents[1] / "tests" / "cache" / "fault_proxy.py"
KEYS = 6
NEFF = bytes(range(256)) * 4096


def parts_of(name: str) -> KeyParts:
    return KeyParts.of(
        ir=name.encode(), compiler="neuronx-cc-sim", compiler_version="1", flags=("-O2",), target="trn2", lnc=2
    )


def start(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def line(process: subprocess.Popen[str], beginning: str = "") -> str:
    assert process.stdout is not None
    for text in process.stdout:
        if text.startswith(beginning):
            return text.removeprefix(beginning).strip()
    raise RuntimeError("the process ended before it said where it listens")


def befall(proxy: subprocess.Popen[str], fault: str) -> None:
    assert proxy.stdin is not None
    proxy.stdin.write(f"{fault} {-1 if fault != 'none' else 0}\n")
    proxy.stdin.flush()
    line(proxy)


def measure(url: str, local: Path, fault: str) -> tuple[str, ...]:
    service = Service(RemoteOptions(url))
    cache = NeffCache(CacheSettings(url, local), RemoteTier(service, RemoteStore(service)))
    times = []
    right = 0
    for number in range(KEYS):
        begun = time.monotonic()
        right += cache.get_or_compile(parts_of(f"{fault} {number}"), lambda: NEFF).neff == NEFF
        times.append(time.monotonic() - begun)
    service.breaker.stop()
    stats = cache.stats
    return (
        fault,
        f"{right}/{KEYS}",
        f"{times[0]:.2f} s",
        f"{max(times):.2f} s",
        f"{statistics.median(times[KEYS // 2 :]) * 1e3:.1f} ms",
        f"{stats.misses}/{stats.errors}/{stats.timeouts}/{stats.breaker_open}/{stats.retries}",
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        service = start("-m", "cli.main", "cache", "serve", f"{place}/store", "--listen", "127.0.0.1:0")
        proxy = None
        try:
            proxy = start(str(PROXY), line(service, "listening on ").rpartition(":")[2])
            url = f"http://127.0.0.1:{line(proxy)}"
            rows = []
            for number, fault in enumerate(FAULTS):
                befall(proxy, fault)
                rows.append(measure(url, Path(place) / f"local-{number}", fault))
        finally:
            for process in (service, proxy):
                if process is not None:
                    process.kill()
                    process.communicate()
    table(
        ("fault on every answer", "right", "first key", "slowest", "last keys", "misses/errors/timeouts/open/retries"),
        rows,
    )
    print("The compile itself takes no time here: all of it is what the cache adds. Goal: last keys <= 50 ms where the "
          "breaker is open.")  # fmt: skip


if __name__ == "__main__":
    main()
