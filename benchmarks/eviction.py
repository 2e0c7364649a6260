"""Ingest at 105 % of what fits (B7): no full disk, no entry without its blobs, and what evicting costs the writer.

`python -m benchmarks eviction`: writers store NEFFs through a real service process, first up to 90 % of its capacity,
then twice over it. The first part needs no eviction, the second evicts for nearly each NEFF; the table compares them.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import urllib3

from benchmarks.report import ms, table
from cache_server.administration.snapshot import take_snapshot
from cache_server.keys import KeyParts
from cache_server.manifest import NEFF_FILE, Blob, Manifest, Producer
from cache_server.storage import open_storage

CAPACITY = 256 << 20
WRITERS = 4
MIB = 1 << 20


def main() -> None:
    rows = []
    for size in (64 << 10, MIB, 8 * MIB):
        rows.append(measure(size))
    table(
        (
            "NEFF",
            "free: put p50",
            "evicting: put p50",
            "p99",
            "ratio",
            "507",
            "full disk",
            "dangling",
            "kept",
        ),
        rows,
    )
    print(
        "A put is a blob and its manifest, flushed to disk; ratio: evicting to free; kept: of the capacity, in the end."
    )
    print("507 (refused), full disk and dangling (manifests without a blob) must be 0.")


def measure(size: int) -> tuple[str, ...]:
    count = min(CAPACITY * 105 // 100 // size, 1500)
    capacity = count * size * 100 // 105
    with tempfile.TemporaryDirectory(prefix="nbench-") as place:
        store, log = Path(place) / "store", Path(place) / "log"
        command = [sys.executable, "-m", "cli.main", "cache", "serve", str(store), "--listen", "127.0.0.1:0"]
        command += ["--capacity", str(capacity), "--state-dir", f"{place}/state"]
        with log.open("wb") as errors:
            service = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert service.stdout is not None
        try:
            url = service.stdout.readline().split()[-1]
            free, _ = ingest(url, size, range(count * 90 // 105))
            evicting, refused = ingest(url, size, range(count, 2 * count))
        finally:
            service.terminate()
            service.wait()
            service.stdout.close()
        snapshot = take_snapshot(open_storage(str(store)))
        dangling = len(snapshot.references() - snapshot.blobs.keys())
        kept = sum(found.size for found in snapshot.blobs.values()) / capacity
        full = log.read_text().count("No space left")
    ratio = statistics.median(evicting) / statistics.median(free)
    p99 = sorted(evicting)[int(len(evicting) * 0.99)]
    name = f"{size >> 10} KiB" if size < MIB else f"{size >> 20} MiB"
    cells = (ms(free), ms(evicting), ms([p99]), f"{ratio:.2f}", refused, full, dangling, f"{kept:.0%}")
    return (name, *map(str, cells))


def ingest(url: str, size: int, numbers: range) -> tuple[list[float], int]:
    """Seconds of each put, and how many were refused."""
    pool = urllib3.PoolManager(maxsize=WRITERS, retries=False)

    def put(number: int) -> tuple[float, int]:
        content = hashlib.sha256(os.urandom(8)).digest() * (size // 32)
        blob = Blob(hashlib.sha256(content).hexdigest(), size)
        parts = KeyParts.of(
            ir=b"graph %d" % number, compiler="cc", compiler_version="1", flags=[], target="trn2", lnc=2
        )
        manifest = Manifest(parts, {NEFF_FILE: blob}, 0, Producer("h", 1, "u", "cc 1", 0.0, 1.0), time.time())
        begun = time.perf_counter()
        stored = pool.request("PUT", f"{url}/v1/namespaces/default/blobs/{blob.sha256}", body=content).status
        listed = pool.request("PUT", f"{url}/v1/namespaces/default/entries/{parts.key}", body=manifest.encode()).status
        return time.perf_counter() - begun, max(stored, listed)

    with concurrent.futures.ThreadPoolExecutor(WRITERS) as writers:
        done = list(writers.map(put, numbers))
    return [seconds for seconds, _ in done], sum(status >= 400 for _, status in done)


if __name__ == "__main__":
    main()
