"""A service over a store with very many entries: it serves its first hit without looking through them."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cache_kit import parts
from service_kit import Service, entries, manifest

from cache_server.storage import open_storage
from cache_server.store import LAYOUT

pytestmark = pytest.mark.fleet

ENTRIES = 100_000
KEY = parts().key


@pytest.fixture
def large_store() -> Iterator[Path]:
    """One entry that is asked for, among 100,000 files in the places of entries, which all have to be read to be known.

    In memory where that can be: making and removing so many files on a disk takes longer than the test.
    """
    memory = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(prefix="neuron-env-test-", dir=memory if os.access(memory, os.W_OK) else None))
    try:
        store = open_storage(str(place / "store")).store
        made = manifest(parts(), store.put_blob(b"neff"))
        store.put_manifest(made)
        root = f"{place}/store/{LAYOUT}/entries/default"
        sources = []
        for number in range(4):  # a file has so and so many names at most
            sources.append(f"{place}/{number}.json")
            Path(sources[-1]).write_bytes(made.encode())
        for number in range(256):
            Path(root, f"{number:02x}").mkdir(exist_ok=True)
        for number in range(ENTRIES):
            os.link(sources[number % 4], f"{root}/{number % 256:02x}/{number % 256:02x}{number:062x}.json")
        yield place
    finally:
        shutil.rmtree(place)


def test_first_hit_after_a_restart_waits_for_no_scan(large_store: Path, tmp_path: Path) -> None:
    for life in ("without an index", "killed while it looked through the store"):
        service = Service(large_store / "store", tmp_path / "log", "--state-dir", str(large_store / "state"))
        try:
            begun = time.monotonic()
            assert service.get("/healthz").status == 200
            trivial = time.monotonic() - begun
            begun = time.monotonic()
            found = service.get(entries(KEY))
            first = time.monotonic() - begun
            assert found.status == 200
            sha256 = found.json()["files"]["module.neff"]["sha256"]
            assert service.get(f"/v1/namespaces/default/blobs/{sha256}").data == b"neff"
            # A second, and more only where this machine is so busy that nothing is quick. A scan takes many times that.
            assert first < max(1.0, 50 * trivial), life
            assert not service.get("/v1/stats").json()["totals"]["complete"], "the scan was to be on its way"
        finally:
            service.close()
