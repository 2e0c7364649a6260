"""TorchNeuron's directory on one host reaches that of another, whole, once, and only within a release."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cache_kit import unprivileged
from transfer_kit import cache_at, neff, torch_cache

from cache_server.leases.owner import Owner
from cache_server.manifest import NEFF_FILE
from cache_server.tier import SharedStore
from cache_server.transfer.foreign import foreign_manifest, foreign_parts, short_key_of
from cache_server.transfer.report import Report
from cache_server.transfer.sync import Sync, TorchDirectory

RELEASE = "2.28.7631.0"
A, B, C = (letter * 32 for letter in "abc")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def store(tmp_path: Path) -> SharedStore:
    storage = cache_at(tmp_path, "fleet").storage
    assert storage is not None
    return storage.store


def sync(root: Path, store: SharedStore, release: str = RELEASE, **options: bool) -> Sync:
    return Sync(TorchDirectory(root), store, release, owner=Owner.here(), **options)


def names(root: Path) -> set[str]:
    return {path.name for path in root.rglob("*") if path.is_file()}


def counts(report: Report) -> dict[str, int]:
    return {fate: count for fate, count in report.counts.items() if count}


def test_what_one_host_compiled_is_in_anothers_directory(tmp_path: Path, store: SharedStore) -> None:
    here, there = torch_cache(tmp_path / "here", A, B), tmp_path / "there"
    assert counts(sync(here, store).upload()) == {"moved": 2}
    assert counts(sync(there, store).fill()) == {"moved": 2}
    path = Path(A[:2], A[2:4], f"{A}.neff")
    assert (there / path).read_bytes() == (here / path).read_bytes()
    assert names(there) == {f"{A}.neff", f"{B}.neff"}  # and nothing that TorchNeuron does not know
    assert (there / path).stat().st_mode & 0o077 == 0o666 & ~umask() & 0o077


def test_again_moves_nothing_and_reads_nothing(tmp_path: Path, store: SharedStore) -> None:
    here = torch_cache(tmp_path / "here", A)
    first = sync(here, store)
    first.upload()
    assert counts(first.upload()) == {}
    assert counts(sync(here, store).upload()) == {"present": 1}
    assert counts(sync(here, store).fill()) == {"present": 1}
    torch_cache(here, B)
    assert counts(first.upload()) == {"moved": 1}


def test_releases_are_kept_apart(tmp_path: Path, store: SharedStore) -> None:
    sync(torch_cache(tmp_path / "here", A), store).upload()
    assert counts(sync(tmp_path / "there", store, "2.29.1.0").fill()) == {}


def test_damaged_files_are_not_spread(tmp_path: Path, store: SharedStore) -> None:
    here = torch_cache(tmp_path / "here", A, content=b"")
    torch_cache(here, B, content=neff("torn")[:-10])
    torch_cache(here, C)
    (here / "cc" / "cc" / ".tmp.x1y2z3").write_bytes(b"being written")
    first = sync(here, store)
    assert counts(first.upload()) == {"moved": 1, "skipped": 2}
    assert counts(first.upload()) == {}
    torch_cache(here, A)
    os.utime(here / A[:2] / A[2:4], (time.time() + 5, time.time() + 5))
    assert counts(first.upload()) == {"moved": 1}


def test_an_empty_file_is_filled(tmp_path: Path, store: SharedStore) -> None:
    sync(torch_cache(tmp_path / "here", A), store).upload()
    there = torch_cache(tmp_path / "there", A, content=b"")
    assert counts(sync(there, store).fill()) == {"moved": 1}
    assert (there / A[:2] / A[2:4] / f"{A}.neff").stat().st_size > 1024


def test_our_own_entries_in_the_directory_are_not_torch_neurons(tmp_path: Path, store: SharedStore) -> None:
    here = torch_cache(tmp_path / "here", A)
    (here / A[:2] / A[2:4] / f"{A}.neff.sha256").write_text("ours")
    assert counts(sync(here, store).upload()) == {}


def test_a_key_from_a_store_is_no_path(store: SharedStore) -> None:
    parts = foreign_parts("../../../../etc/passwd", RELEASE)
    assert short_key_of(parts, RELEASE) is None
    assert short_key_of(foreign_parts(A, RELEASE), RELEASE) == A
    manifest = foreign_manifest(A, RELEASE, b"neff", 1.0, Owner.here())
    assert manifest.files[NEFF_FILE].size == 4


def test_a_file_of_another_user_is_told(public: Path) -> None:
    here = torch_cache(public / "here", A)
    (here / A[:2] / A[2:4] / f"{A}.neff").chmod(0)
    storage = cache_at(public, "fleet").storage
    assert storage is not None
    with unprivileged():
        report = sync(here, storage.store).upload()
    assert counts(report) == {"failed": 1}
    assert "cache doctor" in report.items[0].why


def test_a_dry_run_writes_nothing(tmp_path: Path, store: SharedStore) -> None:
    here = torch_cache(tmp_path / "here", A)
    assert counts(sync(here, store, dry_run=True).upload()) == {"moved": 1}
    assert list(store.entries()) == []


def test_a_sidecar_uploads_what_appears_and_the_rest_at_its_end(tmp_path: Path) -> None:
    here, there, fleet = tmp_path / "here", tmp_path / "there", tmp_path / "fleet"
    command = [sys.executable, "-m", "cli.main", "cache", "sync", "--release", RELEASE, "--cache-url", str(fleet)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(tmp_path / "home")}
    options = {"env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*command, str(here), "--watch", "--every", "0.1"], **options) as sidecar:
        torch_cache(here, A)
        assert sidecar.stdout is not None
        assert sidecar.stdout.readline().startswith("uploaded: 1, ")
        torch_cache(here, B)
        sidecar.terminate()
        sidecar.communicate(timeout=60)
        assert sidecar.returncode == 0
    done = subprocess.run([*command, str(there), "--fill"], **options, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert names(there) == {f"{A}.neff", f"{B}.neff"}


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
