"""A blob far larger than the memory that it takes to move it, up and down through a real process.

`python tests/cache/test_cache_service_large.py GIBIBYTES` does the same with as many as one likes.
"""

from __future__ import annotations

import hashlib
import http.client
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from service_kit import Service

pytestmark = pytest.mark.fleet

MIB = 1 << 20
PIECE = os.urandom(MIB)
GROWTH = 64 * MIB  # of the process' peak of resident memory, whatever the size of the blob


def pieces(count: int) -> Iterator[bytes]:
    """`count` MiB, no two of them alike."""
    for number in range(count):
        yield number.to_bytes(8, "big") + PIECE[8:]


def peak(service: Service) -> int:
    """The most resident memory that the process ever had, in bytes."""
    for line in Path(f"/proc/{service.process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel does not tell")


def move(service: Service, count: int) -> None:
    """Sends `count` MiB as one blob, and gets them twice: as a whole, and the last of them by a range."""
    digest = hashlib.sha256()
    for piece in pieces(count):
        digest.update(piece)
    where, size = f"/v1/namespaces/default/blobs/{digest.hexdigest()}", count * MIB
    connection = http.client.HTTPConnection(urlsplit(service.url).netloc, timeout=600)
    begun = time.monotonic()
    connection.request("PUT", where, pieces(count), {"Content-Length": str(size)})
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (201, b"")
    sent = time.monotonic()
    connection.request("GET", where)
    answer = connection.getresponse()
    assert answer.headers["content-length"] == str(size)
    for piece in pieces(count):
        assert answer.read(MIB) == piece
    assert answer.read() == b""
    got = time.monotonic()
    connection.request("GET", where, headers={"Range": f"bytes={size - MIB}-"})
    assert connection.getresponse().read() == piece
    connection.close()
    print(f"{count} MiB: up {count / (sent - begun):.0f} MiB/s, down {count / (got - sent):.0f} MiB/s")


def test_memory_does_not_grow_with_a_blob(serve: Callable[..., Service]) -> None:
    service = serve()
    move(service, 40)
    before = peak(service)
    move(service, 320)
    assert peak(service) - before < GROWTH


def main() -> None:
    count = int(float(sys.argv[1]) * 1024)
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as place:
        service = Service(Path(place) / "store", Path(place) / "log")
        try:
            before = peak(service)
            move(service, count)
            print(f"peak of resident memory: {before / MIB:.0f} MiB at rest, {peak(service) / MIB:.0f} MiB after")
        finally:
            service.close()


if __name__ == "__main__":
    main()
