"""For tests of the client: a cache over HTTP as one host sees it, and the proxy that makes its network bad."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from cache_server import CacheSettings, NeffCache
from cache_server.remote.options import RemoteOptions
from cache_server.remote.service import Service as RemoteService
from cache_server.remote.store import RemoteStore
from cache_server.remote.tier import RemoteTier

PATIENT = 30.0  # seconds of silence that are no fault on a busy machine


class FaultProxy:
    """The process of `fault_proxy.py` before `port`."""

    def __init__(self, port: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("fault_proxy.py")), str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.url = f"http://127.0.0.1:{self._line()}"

    def befall(self, fault: str, count: int = -1) -> None:
        """From now on `fault` befalls the next `count` answers, all for -1."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{fault} {count}\n")
        self.process.stdin.flush()
        assert self._line() == "ok"

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


def remote_cache(
    url: str, local: Path, *, timeout: float = PATIENT, budget: float = 120.0, **settings: Any
) -> NeffCache:
    """The cache of one "process": connections, retry budget and breaker of its own."""
    service = RemoteService(RemoteOptions(url, timeout_seconds=timeout))
    tier = RemoteTier(service, RemoteStore(service))
    return NeffCache(CacheSettings(url, local, budget_seconds=budget, **settings), tier)


def close_cache(cache: NeffCache) -> None:
    tier = cache.storage
    assert isinstance(tier, RemoteTier)
    tier.service.breaker.stop()
    tier.service.connection.close()
