"""`python -m benchmarks.service`: GET, HEAD and PUT of several sizes, servers side by side in one run (B1).

Every server gets the same bytes and is measured in turn, round by round; a ratio is the median of those of the rounds.
Files are on tmpfs where there is one: the disk of a small machine is all noise. What is put is new each time until all
paths have been used; GET and HEAD ask for one object. Only ours hashes what it stores and flushes it to disk; the
latter costs nothing on tmpfs. wrk and the servers share the machine's cores.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

from benchmarks.report import table
from benchmarks.service.load import LoadError, Measured, counting_cpu, head_load, http_load, redis_load
from benchmarks.service.peers import Server, available, running

KIB = 1024
SIZES = {"1K": KIB, "64K": 64 * KIB, "1M": KIB * KIB, "50M": 50 * KIB * KIB}
METHODS = ("GET", "HEAD", "PUT")
GOALS = {("GET", "1K"): 0.6, ("GET", "1M"): 0.9, ("PUT", "1M"): 1.0}  # to nginx-dav, at 16 connections
_BASE = "nginx-dav"
_GOAL_CONNECTIONS = 16
_LARGE = 10 << 20  # bytes; fewer requests come to their end, and more connections would only queue them
_LARGE_SECONDS, _LARGE_CONNECTIONS = 4, 16  # at least and at most
_PUT_BYTES = 128 << 20  # of different content, which wrk keeps in memory
_PUT_PATHS = (4, 512)  # at least and at most


def main() -> int:
    options = _options()
    reasons = available()
    chosen = [name for name in options.peers if not reasons[name]]
    for name in options.peers:
        if reasons[name]:
            print(f"without {name}: {reasons[name]}")
    if not shutil.which("wrk"):
        print("error: there is no wrk\n\nhint: apt install wrk", file=sys.stderr)
        return 1
    begun = time.monotonic()
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-service-", dir=options.place)))
        print(f"files in {place}")
        servers = [stack.enter_context(running(name, place / name)) for name in chosen]
        for server in servers:
            print(f"{server.name:10} {server.configuration}")
        rows = []
        for size in options.sizes:
            body = place / f"body-{size}"
            body.write_bytes(b"0" * 8 + os.urandom(SIZES[size] - 8))
            _store(servers, body.read_bytes())
            for method in options.methods:
                if method == "HEAD" and size != options.sizes[0]:
                    continue  # no byte of the object is sent
                for connections in options.connections:
                    if SIZES[size] >= _LARGE and connections > _LARGE_CONNECTIONS:
                        continue
                    rows += _measure(servers, method, size, connections, body, options)
            body.unlink()
    table(
        ("", "size", "conns", "server", "req/s", "MB/s", "p50 ms", "p99 ms", "CPU us", f"to {_BASE}", "goal >="), rows
    )
    print(
        f"CPU us: of the server, a request. {time.monotonic() - begun:.0f} s; load at the end {os.getloadavg()[0]:.1f}."
    )
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service", description=__doc__)
    parser.add_argument("--seconds", type=int, default=1, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=1, help="of which the median counts")
    parser.add_argument("--goal-rounds", type=int, default=3, help="of what there is a goal for")
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--connections", nargs="+", type=int, default=[1, 16, 64])
    parser.add_argument("--peers", nargs="+", choices=list(available()), default=list(available()))
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    parser.add_argument("--place", default=memory, help="directory for all files")
    return parser.parse_args()


def _measure(
    servers: list[Server], method: str, size: str, connections: int, body: Path, options: argparse.Namespace
) -> list[tuple[str, ...]]:
    is_goal = (method, size) in GOALS and connections == _GOAL_CONNECTIONS
    seconds = max(options.seconds, _LARGE_SECONDS) if SIZES[size] >= _LARGE else options.seconds
    results: dict[str, list[Measured]] = {}
    for _ in range(options.goal_rounds if is_goal else options.rounds):
        for server in servers:
            if server.name == "redis" and (method == "HEAD" or SIZES[size] >= _LARGE):
                continue
            try:
                with counting_cpu(server.pid) as added:
                    measured = added(_one(server, method, SIZES[size], connections, body, seconds))
            except LoadError as error:
                print(f"{server.name}: {error}", file=sys.stderr)
                continue
            results.setdefault(server.name, []).append(measured)
    rows = []
    for name, rounds in results.items():
        rate = statistics.median(it.rate for it in rounds)
        bases = results.get(_BASE, [])
        ratios = [own.rate / base.rate for own, base in zip(rounds, bases, strict=False)]
        refused = sum(it.refused for it in rounds)
        rows.append(
            (
                method,
                "" if method == "HEAD" else size,
                str(connections),
                f"{name} ({refused} refused)" if refused else name,
                f"{rate:,.0f}",
                "" if method == "HEAD" else f"{rate * SIZES[size] / 1e6:,.0f}",
                f"{statistics.median(it.p50 for it in rounds):.2f}",
                f"{statistics.median(it.p99 for it in rounds):.2f}",
                f"{statistics.median(it.cpu for it in rounds):,.0f}",
                f"{statistics.median(ratios):.2f}" if ratios else "",
                f"{GOALS[method, size]:.1f}" if is_goal and name == "ours" else "",
            )
        )
    return rows


def _one(server: Server, method: str, size: int, connections: int, body: Path, seconds: int) -> Measured:
    if server.name == "redis":
        # As many as take about the time of the others.
        requests = max(connections, int(seconds * min(30_000, 5e8 / size)))
        return redis_load(server.port, method, size, connections=connections, requests=requests)
    data = body.read_bytes()
    if method == "HEAD":
        return head_load(
            server.port,
            server.path_of(data),
            connections=connections,
            seconds=seconds,
            authorization=server.authorization,
        )
    paths = body.with_name("paths")
    paths.write_text("".join(f"{path}\n" for path in _paths(server, method, data)))
    return http_load(
        server.url,
        paths,
        method,
        connections=connections,
        seconds=seconds,
        body=body if method == "PUT" else None,
        authorization=server.authorization,
    )


def _paths(server: Server, method: str, data: bytes) -> list[str]:
    """What is asked for, in turn; request.lua makes the content of each."""
    if method != "PUT":
        return [server.path_of(data)]
    least, most = _PUT_PATHS
    count = min(most, max(least, _PUT_BYTES // len(data)))
    if server.by_content:
        return [server.path_of(b"%08d" % number + data[8:]) for number in range(count)]
    return [f"{server.path_of(data)}-{number}" for number in range(count)]


def _store(servers: list[Server], data: bytes) -> None:
    for server in servers:
        if server.name == "redis":
            continue  # its tool brings its own values
        headers = {"Content-Type": "application/octet-stream"}
        if server.authorization:
            headers["Authorization"] = server.authorization
        request = urllib.request.Request(server.url + server.path_of(data), data, headers, method="PUT")
        urllib.request.urlopen(request, timeout=120).close()


if __name__ == "__main__":
    sys.exit(main())
