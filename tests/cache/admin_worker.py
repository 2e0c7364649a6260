"""A process that either asks the cache for keys over and over, or takes entries away, for the tests of both at once."""

from __future__ import annotations

import hashlib
import json
import os
import random
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

from cache_kit import open_cache, parts

from cache_server import NeffCache
from cache_server.administration.collection import Policy, plan_collection
from cache_server.administration.fsck import check, repair
from cache_server.administration.removal import Plan, Step, carry_out, plan_entries
from cache_server.administration.snapshot import take_snapshot

EVERYTHING = Policy(older_than=-3600.0, grace=-3600.0)  # whatever this moment's clock says


def content(ir: str) -> bytes:
    """What graph `ir` compiles to; graphs that differ in the last letter only share it."""
    return hashlib.sha256(ir[:-1].encode()).digest() * 1000


def work(shared: Path, rounds: int) -> dict[str, Any]:
    """Every request from a host of its own, so that each goes to the shared store."""
    chosen = random.Random(os.getpid())
    outcomes: dict[str, int] = {}
    for number in range(rounds):
        ir = f"graph {chosen.randrange(3)}{chosen.choice('xy')}"
        cache = open_cache(shared, f"{os.getpid()}-{number}")
        result = cache.get_or_compile(parts(ir), lambda ir=ir: content(ir))  # type: ignore[misc]
        assert result.neff == content(ir), f"{result.outcome}: other bytes than {ir} has"
        outcomes[result.outcome] = outcomes.get(result.outcome, 0) + 1
        assert cache.stats.quarantined == 0
        assert cache.stats.errors == 0
    return outcomes


def disturb(shared: Path, how: str) -> int:
    """Takes away whatever is there until stdin ends, and once more then; how many things went."""
    gone = take_away(shared, how)
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        gone += take_away(shared, how)
    return gone + take_away(shared, how)


def take_away(shared: Path, how: str) -> int:
    cache = open_cache(shared)
    storage = cache.storage
    assert storage is not None
    if how == "fsck":
        problems = check(storage, now=time.time(), grace=-3600.0)
        return sum(repair(storage, problem, cache.owner) for problem in problems)
    if how == "gc":
        plan = plan_collection(storage, EVERYTHING, now=time.time())
    else:
        snapshot = take_snapshot(storage)
        plan = Plan(tuple(plan_entries(snapshot, [(entry, "asked for") for entry in snapshot.entries])))
    return len(carry_out(storage, plan).done)


def die_after(cache: NeffCache, steps: int) -> None:
    """Collects everything, killed when so many steps are done."""
    storage = cache.storage
    assert storage is not None
    left = steps

    def count(step: Step) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    carry_out(storage, plan_collection(storage, EVERYTHING, now=time.time()), step_done=count)


def main(shared: Path, role: str, amount: int) -> None:
    match role:
        case "work":
            json.dump(work(shared, amount), sys.stdout)
        case "die":
            die_after(open_cache(shared), amount)
        case _:
            json.dump(disturb(shared, role), sys.stdout)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
