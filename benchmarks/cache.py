"""A warm `get_or_compile` of a 1 MB NEFF, its digest verified each time. Goal: at most 1 ms from the local tier.

A hit in a shared tier also puts the NEFF into the local tier. The service is a process of its own, on loopback.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

import urllib3

from benchmarks.cache_waiters import parts_of, refuse, service
from benchmarks.report import in_turn, ms, ratio, table
from cache_server import CacheSettings, NeffCache

PARTS = parts_of("module")
ROUNDS = 200
SIZE = 1 << 20


def empty(directory: Path) -> None:
    for path in directory.rglob("*"):
        if path.is_file():
            path.unlink()


def main() -> None:
    neff = os.urandom(SIZE)
    with tempfile.TemporaryDirectory() as place, service(Path(place) / "served") as (url, _):
        root = Path(place)
        settings = CacheSettings(url=str(root / "shared"), local_dir=root / "local")
        cache = NeffCache.open(settings=settings)
        remote = NeffCache.open(settings=CacheSettings(url=url, local_dir=root / "beside"))
        for each in (cache, remote):
            assert each.get_or_compile(PARTS, lambda: neff).neff == neff

        def shared() -> None:
            empty(root / "local")
            assert NeffCache.open(settings=settings).get_or_compile(PARTS, refuse).outcome == "shared_hit"

        def local() -> None:
            assert cache.get_or_compile(PARTS, refuse).outcome == "local_hit"

        def served() -> None:
            empty(root / "beside")
            assert remote.get_or_compile(PARTS, refuse).outcome == "shared_hit"

        blob = f"{url}/v1/namespaces/default/blobs/{hashlib.sha256(neff).hexdigest()}"
        pool = urllib3.PoolManager()
        file = root / "plain"
        file.write_bytes(neff)
        times = in_turn(
            {
                "served": served,
                "shared": shared,
                "local": local,
                "get+sha256": lambda: hashlib.sha256(pool.request("GET", blob).data).digest(),
                "read": lambda: file.read_bytes(),
                "read+sha256": lambda: hashlib.sha256(file.read_bytes()).digest(),
            },
            ROUNDS,
        )
    table(
        ("1 MB NEFF, digest verified", "median", "to read+sha256", "goal <="),
        [
            ("local tier", ms(times["local"]), f"{ratio(times, 'local', 'read+sha256'):.2f}", "1 ms"),
            ("shared directory, empty local tier", ms(times["shared"]), f"{ratio(times, 'shared', 'read+sha256'):.2f}",
             ""),
            ("service, empty local tier", ms(times["served"]), f"{ratio(times, 'served', 'read+sha256'):.2f}", ""),
            ("GET of the blob alone, hashed", ms(times["get+sha256"]),
             f"{ratio(times, 'get+sha256', 'read+sha256'):.2f}", ""),
            ("reading a file and hashing it", ms(times["read+sha256"]), "1.00", ""),
            ("reading a file", ms(times["read"]), f"{ratio(times, 'read', 'read+sha256'):.2f}", ""),
        ],
    )  # fmt: skip


if __name__ == "__main__":
    main()
