"""Jobs before a load balancer with two replicas on one bucket: a replica killed in mid-compile costs them nothing."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cache_kit import DEADLINE, eventually, parts
from client_kit import close_cache, remote_cache
from service_kit import Service, entries

from cache_server.result import CacheResult, Outcome, Phase
from cache_server.storage import open_storage

pytestmark = pytest.mark.fleet


class Balancer:
    """Takes each connection to the first replica that is there."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = ports
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        for end in self._ends:
            _hang_up(end)
        for thread in self._threads:
            thread.join()
        for end in self._ends:
            end.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._ends.append(near)
                far = self._replica()
                if far is None:
                    _hang_up(near)
                    continue
                self._ends.append(far)
                for one, other in ((near, far), (far, near)):
                    self._threads.append(threading.Thread(target=_pump, args=(one, other)))
                    self._threads[-1].start()

    def _replica(self) -> socket.socket | None:
        for port in self._ports:
            with contextlib.suppress(OSError):
                return socket.create_connection(("127.0.0.1", port))
        return None


def _pump(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
    _hang_up(one)
    _hang_up(other)


def _hang_up(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def replicas(serve: Callable[..., Service], s3_url: str) -> list[Service]:
    return [serve(s3_url), serve(s3_url)]


@pytest.fixture
def balancer(replicas: list[Service]) -> Iterator[Balancer]:
    balancer = Balancer([int(replica.url.rpartition(":")[2]) for replica in replicas])
    yield balancer
    balancer.close()


@pytest.mark.parametrize("phase", [Phase.COMPILING, Phase.STORING, Phase.PUBLISHING])
def test_replica_killed_at_a_phase_of_a_clients_compile_costs_nothing(
    tmp_path: Path, replicas: list[Service], balancer: Balancer, s3_url: str, phase: Phase
) -> None:
    first, second = replicas
    owner, waiter = (remote_cache(balancer.url, tmp_path / name, lease_seconds=120.0) for name in ("a", "b"))
    compiles: list[str] = []
    results: dict[str, CacheResult] = {}
    acquired = threading.Event()

    def reach(now: Phase) -> None:
        acquired.set()
        if now is Phase.COMPILING:
            eventually(lambda: waiter.stats.waits, "the other job waits")
        if now is phase:
            first.kill()

    def compiled(name: str) -> bytes:
        compiles.append(name)
        return name.encode() * 1000

    def own() -> None:
        results["a"] = owner.get_or_compile(parts(), lambda: compiled("a"))

    def wait() -> None:
        assert acquired.wait(DEADLINE)
        results["b"] = waiter.get_or_compile(parts(), lambda: compiled("b"))

    owner.on_phase = reach
    threads = [threading.Thread(target=own), threading.Thread(target=wait)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=100)
    finally:
        for cache in (owner, waiter):
            close_cache(cache)
    assert compiles == ["a"]
    assert {name: result.outcome for name, result in results.items()} == {
        "a": Outcome.COMPILED,
        "b": Outcome.SHARED_HIT,
    }
    assert results["a"].neff == results["b"].neff
    assert eventually(lambda: second.get(entries(parts().key)).status == 200, "it is listed")
    manifest = open_storage(s3_url).store.read_manifest(parts().key)
    assert manifest is not None
    assert manifest.epoch == 1
