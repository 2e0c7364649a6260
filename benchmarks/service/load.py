"""One measured load on one server: by wrk, for HEAD by sockets of our own, for redis by its own tool."""

from __future__ import annotations

import json
import os
import re
import selectors
import socket
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

_SCRIPT = Path(__file__).with_name("request.lua")
_TOLERATED = 0.01  # of the requests: a server that refuses two writers of one path at once is measured all the same
_TICK = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Measured:
    """Requests, how many a second, the milliseconds that half and 99 % of them stayed below, and the CPU time of one.

    `cpu` is in microseconds, user and system, of all processes of the server.
    """

    requests: int
    rate: float
    p50: float
    p99: float
    cpu: float = 0.0
    refused: int = 0


class LoadError(Exception):
    """A server refused what it was asked: nothing was measured."""


def http_load(
    url: str,
    paths: Path,
    method: str,
    *,
    connections: int,
    seconds: int,
    body: Path | None,
    authorization: str = "",
) -> Measured:
    """wrk with one thread, on the paths of a file in turn. Raises LoadError."""
    environment = {"BENCH_METHOD": method, "BENCH_PATHS": str(paths)}
    if body is not None:
        environment["BENCH_BODY"] = str(body)
    if authorization:
        environment["BENCH_AUTHORIZATION"] = authorization
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "60s", "-s", str(_SCRIPT), url]
    ran = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    line = next((line for line in ran.stdout.splitlines() if line.startswith("BENCH ")), None)
    if line is None:
        raise LoadError(f"wrk told nothing of {method} {url}: {ran.stdout}{ran.stderr}")
    value = json.loads(line.removeprefix("BENCH "))
    if value["errors"] > value["requests"] * _TOLERATED or not value["requests"]:
        raise LoadError(f"{value['errors']} of {value['requests']} requests {method} {url} failed")
    requests = value["requests"]
    return Measured(requests, requests / value["seconds"], value["p50"], value["p99"], refused=value["errors"])


def head_load(port: int, path: str, *, connections: int, seconds: int, authorization: str = "") -> Measured:
    """HEAD requests, for whose answer wrk waits in vain. Raises LoadError."""
    lines = [f"HEAD {path} HTTP/1.1", f"Host: 127.0.0.1:{port}"]
    request = "\r\n".join([*lines, *([f"Authorization: {authorization}"] if authorization else []), "", ""]).encode()
    times: list[float] = []
    begun: dict[socket.socket, float] = {}
    with selectors.DefaultSelector() as selector:
        for _ in range(connections):
            one = socket.create_connection(("127.0.0.1", port), timeout=10)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(one, selectors.EVENT_READ)
            begun[one] = time.perf_counter()
            one.sendall(request)
        start = time.perf_counter()
        while (now := time.perf_counter()) < start + seconds:
            for ready, _ in selector.select(1.0):
                one = ready.fileobj  # type: ignore[assignment]
                answer = one.recv(65536)
                if b" 200 " not in answer[:16] or not answer.endswith(b"\r\n\r\n"):
                    raise LoadError(f"HEAD {path} on port {port} was answered {answer[:100]!r}")
                now = time.perf_counter()
                times.append(now - begun[one])
                begun[one] = now
                one.sendall(request)
        for one in begun:
            one.close()
    if len(times) < 2:
        raise LoadError(f"HEAD {path} on port {port} was not answered")
    cut = statistics.quantiles(times, n=100)
    return Measured(len(times), len(times) / (now - start), cut[49] * 1e3, cut[98] * 1e3)


def redis_load(port: int, method: str, size: int, *, connections: int, requests: int) -> Measured:
    """redis-benchmark, which is told a number of requests, not of seconds. Raises LoadError."""
    test = {"GET": "set,get", "PUT": "set"}[method]  # what was never set is quickly got
    command = ["redis-benchmark", "-p", str(port), "-t", test, "-d", str(size), "-c", str(connections),
               "-n", str(requests), "--csv"]  # fmt: skip
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    numbers = re.findall(r'"([\d.]+)"', told.splitlines()[-1])
    if len(numbers) < 7:
        raise LoadError(f"redis-benchmark told nothing: {told}")
    rate, _, _, p50, _, p99, _ = (float(number) for number in numbers[:7])
    return Measured(requests, rate, p50, p99)


@contextmanager
def counting_cpu(pid: int) -> Iterator[Callable[[Measured], Measured]]:
    """Gives a function that adds to a measurement what CPU time the server `pid` and its children took for it."""
    before = _cpu_seconds(pid)

    def added(measured: Measured) -> Measured:
        return replace(measured, cpu=(_cpu_seconds(pid) - before) / measured.requests * 1e6)

    yield added


def _cpu_seconds(pid: int) -> float:
    """Of a process and its children, whether they live or have been waited for."""
    stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(int(ticks) for ticks in stat[11:15]) * _TICK + sum(_cpu_seconds(int(child)) for child in children)
