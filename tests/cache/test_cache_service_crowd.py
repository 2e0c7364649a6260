"""Ten thousand waiters on one process, each with a connection of its own."""

from __future__ import annotations

import resource
import selectors
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cache_kit import DEADLINE, eventually, parts
from service_kit import OWNER, Service, leases, manifest

from cache_server.storage import open_storage

pytestmark = pytest.mark.fleet

KEY = parts().key
CROWD = 10_000
PATIENCE = 150.0  # seconds, on a busy machine; a quiet one needs ten
SPARE = 200  # descriptors that the test process needs beside its connections


@pytest.fixture
def crowd() -> Iterator[int]:
    """How many connections this process may open at once: the whole crowd where the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield CROWD if hard == resource.RLIM_INFINITY else min(CROWD, hard - SPARE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Crowd:
    """Connections that each have one long poll on its way, on this one thread; asked anew when its time is over."""

    def __init__(self, service: Service, size: int, path: str) -> None:
        host, _, port = service.url.removeprefix("http://").partition(":")
        self._request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
        self._selector = selectors.DefaultSelector()
        self.settled = 0
        for _ in range(size):
            connection = socket.create_connection((host, int(port)), timeout=DEADLINE)
            connection.sendall(self._request)
            self._selector.register(connection, selectors.EVENT_READ, bytearray())

    def pump(self) -> bool:
        """Takes what has arrived; True once every connection has learned of the publish and was closed."""
        for key, _ in self._selector.select(0.05):
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            key.data.extend(connection.recv(65536))
            if not key.data.endswith(b"}\n"):
                continue
            if b'"state": "settled"' in key.data:
                self.settled += 1
                self._selector.unregister(connection)
                connection.close()
            else:
                key.data.clear()
                connection.sendall(self._request)
        return not self._selector.get_map()

    def close(self) -> None:
        for key in list(self._selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_whole_fleet_waits_at_once_and_is_told_of_one_publish(
    serve: Callable[..., Service], tmp_path: Path, crowd: int
) -> None:
    service = serve()
    lease = service.post(leases(KEY, "acquire"), {"owner": OWNER, "lease_seconds": 600}).json()
    waiting = Crowd(service, crowd, f"{leases(KEY)}?after={lease['version']}&wait=60")

    def all_wait() -> bool:
        waiting.pump()
        return bool(service.get("/v1/stats").json()["in_flight"][0]["waiters"] == crowd)

    try:
        eventually(all_wait, f"{crowd} wait at once", PATIENCE)
        store = open_storage(str(tmp_path / "served")).store
        made = manifest(parts(), store.put_blob(b"neff"), epoch=1)
        body = {"token": lease["token"], "epoch": 1, "manifest": made.to_json()}
        assert service.post(leases(KEY, "publish"), body).status == 201
        eventually(waiting.pump, "all are told", PATIENCE)
    finally:
        waiting.close()
    assert waiting.settled == crowd
    assert service.get("/healthz").status == 200
