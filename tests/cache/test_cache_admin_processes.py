"""Administration beside running jobs, with real processes and kill -9."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from admin_worker import EVERYTHING, content
from cache_kit import DEADLINE, open_cache, parts

from cache_server.administration.collection import plan_collection
from cache_server.administration.fsck import check
from cache_server.administration.removal import carry_out
from cache_server.administration.snapshot import take_snapshot

pytestmark = pytest.mark.fleet

GRAPHS = [f"graph {number}{letter}" for number in range(3) for letter in "xy"]
WORKER = Path(__file__).with_name("admin_worker.py")

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    children: list[subprocess.Popen[str]] = []

    def start_one(role: str, amount: int = 0) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, str(WORKER), str(tmp_path), role, str(amount)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        children.append(child)
        return child

    yield start_one
    for child in children:
        child.kill()
        child.communicate()


@pytest.mark.parametrize("how", ["gc", "rm", "fsck"])
def test_jobs_never_notice_that_entries_are_taken_from_under_them(start: Start, tmp_path: Path, how: str) -> None:
    for ir in GRAPHS:
        open_cache(tmp_path).get_or_compile(parts(ir), lambda ir=ir: content(ir))  # type: ignore[misc]
    disturber = start(how)
    assert disturber.stdout is not None
    assert disturber.stdout.readline() == "ready\n"
    jobs = [start("work", 40) for _ in range(4)]
    outcomes: dict[str, int] = {}
    for job in jobs:
        out, err = job.communicate(timeout=DEADLINE * 2)
        assert job.returncode == 0, err
        for outcome, count in json.loads(out).items():
            outcomes[outcome] = outcomes.get(outcome, 0) + count
    out, err = disturber.communicate(timeout=DEADLINE)
    assert disturber.returncode == 0, err
    assert sum(outcomes.values()) == 160
    assert outcomes.get("compiled_uncached", 0) == 0
    if how != "fsck":
        # Six entries and three blobs before the jobs began, and of what they made since.
        assert json.loads(out) > 9
        assert outcomes["compiled"] >= 3
    cache = open_cache(tmp_path)
    assert cache.storage is not None
    # A blob may have gone in the moment between its storing and its publishing: its entry is then a miss, not a fault
    # that lasts.
    for ir in GRAPHS:
        fresh = open_cache(tmp_path, f"after-{ir}")
        assert fresh.get_or_compile(parts(ir), lambda ir=ir: content(ir)).neff == content(ir)  # type: ignore[misc]
    assert check(cache.storage, now=time.time(), grace=3600.0) == []


@pytest.mark.parametrize("steps", [1, 3, 4, 6])
def test_a_collection_killed_midway_is_finished_by_the_next(start: Start, tmp_path: Path, steps: int) -> None:
    graphs = ["graph 0x", "graph 1x", "graph 2x"]
    for ir in graphs:
        open_cache(tmp_path).get_or_compile(parts(ir), lambda ir=ir: content(ir))  # type: ignore[misc]
    child = start("die", steps)
    assert child.wait(timeout=DEADLINE) == -signal.SIGKILL
    cache = open_cache(tmp_path, "b")
    assert cache.storage is not None
    hits = [cache.get(parts(ir)) for ir in graphs]
    assert sum(hit is None for hit in hits) == min(steps, 3)
    assert all(hit is None or hit.neff == content(ir) for ir, hit in zip(graphs, hits, strict=True))
    assert cache.stats.quarantined == 0
    plan = plan_collection(cache.storage, EVERYTHING, now=time.time())
    assert carry_out(cache.storage, plan).left == ()
    after = take_snapshot(cache.storage)
    assert (after.entries, after.blobs) == ((), {})
    again = open_cache(tmp_path, "c").get_or_compile(parts(graphs[0]), lambda: content(graphs[0]))
    assert (again.outcome, again.epoch) == ("compiled", 2)
