"""What the vendor's caches do not tell: each illness is found by its kind, and mended only where that is safe."""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from cache_kit import DEADLINE
from transfer_kit import legacy_cache, module, neff, torch_cache

from cache_server.doctor.finding import Finding, mend_all
from cache_server.doctor.legacy import examine_legacy
from cache_server.doctor.locks import compilers, examine_locks, file_id, holders
from cache_server.doctor.neffs import examine
from cache_server.doctor.places import examine_disk, examine_mount, mount_of
from cache_server.launcher.verdict import judge
from neuron_runtime.compiler.errors import FailureKind
from neuron_runtime.neff.header import NeffHeader

A, B, C = (letter * 32 for letter in "abc")
OLD = time.time() - 7 * 86400


def kinds(findings: Iterable[Finding]) -> dict[str, Finding]:
    return {finding.kind: finding for finding in findings}


def path(root: Path, key: str) -> Path:
    return root / key[:2] / key[2:4] / f"{key}.neff"


@pytest.fixture(autouse=True)
def no_compiler_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests run some."""
    monkeypatch.setattr("cache_server.doctor.legacy.compilers", list)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    root = torch_cache(tmp_path / "neff_cache", A, B)
    root.chmod(0o755)
    for file in root.rglob("*.neff"):
        file.chmod(0o644)
    return root


def test_a_healthy_directory_has_no_findings(cache: Path) -> None:
    assert kinds(examine(cache, lnc=2, target="trn2", deep=True)) == {}


def test_files_that_others_cannot_read_get_the_right_of_the_directory(cache: Path) -> None:
    path(cache, A).chmod(0o600)
    found = kinds(examine(cache))
    assert found["unreadable"].places == (path(cache, A),)
    mend_all(found.values())
    assert path(cache, A).stat().st_mode & 0o777 == 0o644
    assert kinds(examine(cache)) == {}
    path(cache, A).chmod(0o600)
    cache.chmod(0o700)
    assert kinds(examine(cache)) == {}


def test_empty_and_truncated_neffs_are_removed(cache: Path) -> None:
    path(cache, A).write_bytes(b"")
    path(cache, B).write_bytes(neff("torn")[:-10])
    found = kinds(examine(cache))
    assert set(found) == {"empty", "damaged"}
    path(cache, A).write_bytes(neff("whole by now"))
    results = {finding.kind: count for finding, count, _ in mend_all(found.values())}
    assert results == {"empty": 0, "damaged": 1}
    assert path(cache, A).exists()
    assert not path(cache, B).exists()


def test_a_flipped_bit_is_found_by_a_deep_look_alone(cache: Path) -> None:
    content = bytearray(path(cache, A).read_bytes())
    content[-20] ^= 1
    path(cache, A).write_bytes(content)
    assert kinds(examine(cache)) == {}
    assert set(kinds(examine(cache, deep=True))) == {"damaged"}


def test_temporary_files_of_the_dead_are_removed(cache: Path) -> None:
    dead, live = path(cache, A).with_name(".tmp.a1B2c3"), path(cache, A).with_name(".tmp.d4e5f6")
    for file in (dead, live):
        file.write_bytes(b"part")
    os.utime(dead, (OLD, OLD))
    found = kinds(examine(cache))
    assert found["leftover"].places == (dead,)
    mend_all(found.values())
    assert live.exists()
    assert not dead.exists()


def test_another_lnc_target_and_compiler_are_told(cache: Path) -> None:
    content = path(cache, B).read_bytes()
    header = NeffHeader.unpack(content)
    fields = {name: getattr(header, name) for name in header.__slots__}
    changed = NeffHeader(**{**fields, "lnc_size": 1, "neff_build_version": "2.27.5334.0"})
    path(cache, B).write_bytes(changed.pack() + content[1024:])
    assert {"other-lnc", "mixed-versions"} <= set(kinds(examine(cache, lnc=2)))
    assert kinds(examine(cache, lnc=2))["other-lnc"].places == (path(cache, B),)
    assert "mixed-lnc" in kinds(examine(cache))
    assert kinds(examine(cache, target="trn3"))["other-target"].places
    assert all(finding.mend is None for finding in examine(cache, lnc=2, target="trn3"))


def test_only_held_locks_are_locks(tmp_path: Path) -> None:
    held, free = tmp_path / f"{A}.lock", tmp_path / f"{B}.lock"
    for file in (held, free):
        file.touch()
        os.utime(file, (OLD, OLD))
    with held.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert holders()[file_id(held.stat())] == os.getpid()
        found = kinds(examine_locks(tmp_path))
    assert found["old-lock"].places == (held,)
    assert f"pid {os.getpid()}" in found["old-lock"].text
    assert kinds(examine_locks(tmp_path)) == {}


def test_a_waiter_holds_nothing() -> None:
    table = "1: FLOCK  ADVISORY  WRITE 708 fe:01:42 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 709 fe:01:43 0 EOF\n"
    assert holders(table) == {(0xFE, 1, 42): 708}


def test_locks_of_dead_compiles_are_told_from_live_ones(tmp_path: Path) -> None:
    root = legacy_cache(tmp_path / "legacy")
    live = module(root, "MODULE_200+aaaa", hlo=b"hlo", lock=b"") / "model.hlo_module.pb.lock"
    os.utime(live, (OLD, OLD))
    with live.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        found = kinds(examine_legacy(root, shared=False))
        [stale] = found["stale-lock"].places
        assert stale.parent.name == "MODULE_104+aaaa"
        assert "for 168.0 h" in found["stale-lock"].text
        mend_all([found["stale-lock"]])
    assert live.exists()
    assert not stale.exists()


def test_no_lock_is_dead_while_a_compiler_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = legacy_cache(tmp_path / "legacy")
    stale = kinds(examine_legacy(root, shared=False))["stale-lock"]
    compiler = tmp_path / "neuronx-cc"
    compiler.write_text("#!/bin/sh\nread line\n")
    compiler.chmod(0o755)
    with subprocess.Popen([compiler], stdin=subprocess.PIPE) as process:
        end = time.monotonic() + DEADLINE
        while process.pid not in compilers():  # an exec takes a moment to be seen
            assert time.monotonic() < end
        monkeypatch.setattr("cache_server.doctor.legacy.compilers", lambda: [process.pid])
        found = kinds(examine_legacy(root, shared=False))
        assert f"pid {process.pid}" in found["lock"].text
        assert mend_all([stale])[0][1] == 0  # by now it may be that compiler's
        process.communicate(b"end\n")


def test_locks_that_other_hosts_may_hold_are_not_touched(tmp_path: Path) -> None:
    found = kinds(examine_legacy(legacy_cache(tmp_path / "legacy"), shared=True))
    assert "stale-lock" not in found
    assert found["lock"].mend is None


def test_remembered_failures_are_listed_and_cleared_by_class(tmp_path: Path) -> None:
    root = legacy_cache(tmp_path / "legacy")
    module(root, "MODULE_300+aaaa", hlo=b"hlo", log=b"[ERROR] [NCC_EVRF009] no such operator\n")
    module(root, "MODULE_301+aaaa", hlo=b"hlo", log=b"[F137] neuronx-cc was forcibly killed\n")
    found = kinds(examine_legacy(root, shared=True))
    assert "no such operator" in found["failed-compiler-error"].text
    assert found["failed-compiler-error"].mend is None
    assert "forcibly killed" in found["failed-out-of-memory"].text
    mend_all(found.values())
    left = kinds(examine_legacy(root, shared=True, clear_all=True))
    assert {kind for kind in left if kind.startswith("failed")} == {"failed-compiler-error"}
    mend_all(left.values())
    assert not any(kind.startswith("failed") for kind in kinds(examine_legacy(root, shared=True)))
    assert judge(70, "[NCC_EVRF009]").kind is FailureKind.COMPILER_ERROR


MOUNTS = """\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 0:50 / /fsx rw,relatime shared:2 - lustre 10.0.0.1@tcp:/fsx rw,{lustre}
31 22 0:51 / /efs rw,relatime shared:3 - nfs4 fs.example:/ rw,vers=4.1,{nfs}
32 22 0:52 / /tmp rw shared:4 - tmpfs tmpfs rw
"""


@pytest.mark.parametrize(
    ("place", "options", "kind", "weight"),
    [
        ("/fsx/neff", {"lustre": "flock"}, None, None),
        ("/fsx/neff", {"lustre": "localflock"}, "locks-local", "error"),
        ("/fsx/neff", {"lustre": "lazystatfs"}, "locks-local", "error"),
        ("/efs/neff", {"nfs": "local_lock=none"}, "locks-local", "warning"),
        ("/efs/neff", {"nfs": "local_lock=all"}, "locks-local", "error"),
        ("/tmp/neff", {}, "volatile", "note"),
        ("/var/neff", {}, None, None),
    ],
)
def test_mount_options_that_make_locks_meaningless(
    place: str, options: dict[str, str], kind: str | None, weight: str | None
) -> None:
    table = MOUNTS.format(**{"lustre": "flock", "nfs": "local_lock=none", **options})
    found = list(examine_mount(Path(place), mount_of(Path(place), table), locks=True))
    assert [(it.kind, it.weight.value) for it in found] == ([(kind, weight)] if kind else [])


def test_a_disk_without_room_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = os.statvfs_result((4096, 4096, 1 << 20, 1000, 1000, 1000, 10, 10, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda place: full)
    assert {"full", "no-inodes"} <= set(kinds(examine_disk(tmp_path)))
    assert list(tmp_path.iterdir()) == []
