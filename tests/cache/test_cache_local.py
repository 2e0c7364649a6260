"""The local tier: TorchNeuron's layout, verified on every hit, never in the way."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import threading
from pathlib import Path

import pytest
from cache_kit import parts

from cache_server.local import LocalTier

NEFF = os.urandom(5000)


@pytest.fixture
def tier(tmp_path: Path) -> LocalTier:
    return LocalTier(tmp_path / "local")


def test_neff_is_kept_where_torchneuron_looks_for_it(tier: LocalTier) -> None:
    assert tier.get(parts()) is None
    assert tier.put(parts(), NEFF, 12.5)
    k = parts().short_key
    assert (tier.root / k[0:2] / k[2:4] / f"{k}.neff").read_bytes() == NEFF
    hit = tier.get(parts())
    assert hit is not None
    assert hit.neff == NEFF
    assert hit.compile_seconds == 12.5
    assert tier.get(parts(lnc=1)) is None


def test_digest_file_is_what_sha256sum_checks(tier: LocalTier) -> None:
    tier.put(parts(), NEFF, 1.0)
    path = tier.path(parts())
    run = subprocess.run(
        ["sha256sum", "--check", "--strict", f"{path.name}.sha256"], cwd=path.parent, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("damage", [b"", NEFF[:-1], NEFF + b"x", bytes([NEFF[0] ^ 1]) + NEFF[1:]])
def test_damaged_neff_is_a_miss_and_is_set_aside(tier: LocalTier, damage: bytes) -> None:
    tier.put(parts(), NEFF, 1.0)
    tier.path(parts()).write_bytes(damage)
    assert tier.get(parts()) is None
    assert tier.quarantined == 1
    [aside] = (tier.root / "quarantine").iterdir()
    assert aside.read_bytes() == damage
    assert tier.put(parts(), NEFF, 1.0)
    assert tier.get(parts()) is not None


@pytest.mark.parametrize("note", [b"", b"garbage", b"\xff" * 50, b"x" * 5000])
def test_damaged_digest_file_is_a_miss(tier: LocalTier, note: bytes) -> None:
    tier.put(parts(), NEFF, 1.0)
    Path(f"{tier.path(parts())}.sha256").write_bytes(note)
    assert tier.get(parts()) is None
    assert tier.quarantined == 1


def test_neff_without_a_digest_is_a_miss_and_stays(tier: LocalTier) -> None:
    path = tier.path(parts())
    path.parent.mkdir(parents=True)
    path.write_bytes(NEFF)
    assert tier.get(parts()) is None
    assert path.read_bytes() == NEFF
    assert tier.quarantined == 0


def test_crash_between_the_two_files_is_a_miss(tier: LocalTier) -> None:
    tier.put(parts(), NEFF, 1.0)
    tier.path(parts()).unlink()
    assert tier.get(parts()) is None


def test_key_that_only_begins_the_same_is_a_miss(tier: LocalTier) -> None:
    tier.put(parts(), NEFF, 1.0)
    note = Path(f"{tier.path(parts())}.sha256")
    key = parts().key
    note.write_text(note.read_text().replace(key, key[:32] + "0" * 32))
    assert tier.get(parts()) is None
    assert tier.quarantined == 0


def test_files_are_private_whatever_the_umask(tier: LocalTier) -> None:
    previous = os.umask(0)
    try:
        lock = tier.lock(parts())
        assert lock.try_acquire()
        tier.put(parts(), NEFF, 1.0)
        for path in [tier.root, *tier.root.rglob("*")]:
            assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path
        lock.release()
    finally:
        os.umask(previous)


def test_tier_that_cannot_be_written_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    tier = LocalTier(tmp_path / "file" / "local")
    assert tier.get(parts()) is None
    assert not tier.put(parts(), NEFF, 1.0)
    assert tier.errors == 1
    lock = tier.lock(parts())
    assert lock.try_acquire(), "without a place for the lock, everybody may go on"
    lock.release()


def test_lock_is_one_process_and_one_thread_at_a_time(tier: LocalTier) -> None:
    first, second = tier.lock(parts()), tier.lock(parts())
    assert first.try_acquire()
    seen: list[bool] = []
    thread = threading.Thread(target=lambda: seen.append(second.try_acquire()))
    thread.start()
    thread.join()
    assert seen == [False]
    assert tier.lock(parts(lnc=1)).try_acquire()
    first.release()
    assert second.try_acquire()
    second.release()


def test_lock_directory_that_others_can_enter_is_not_used(tier: LocalTier) -> None:
    locks = tier.root / "locks"
    locks.mkdir(parents=True)
    locks.chmod(0o777)
    lock = tier.lock(parts())
    assert lock.try_acquire()
    lock.release()
    assert list(locks.iterdir()) == []


def test_put_of_other_bytes_replaces_the_neff(tier: LocalTier) -> None:
    tier.put(parts(), b"old", 1.0)
    tier.put(parts(), b"new", 1.0)
    hit = tier.get(parts())
    assert hit is not None
    assert hashlib.sha256(hit.neff).digest() == hashlib.sha256(b"new").digest()
