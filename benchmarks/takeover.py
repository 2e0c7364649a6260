"""Owners that die or stop in the middle of a compile (B3): how soon another goes on, and what is lost or damaged.

`python -m benchmarks takeover`: for each store, owners compile a key each and are killed with SIGKILL some milliseconds
after a random step, or stopped past their lease and resumed. Two processes wait for all the keys: of other hosts, which
can only wait for the lease to run out, or of the owners' own, which can see that they are gone. Goals: takeover within
the lease (at once on the same host); a compile done again only if it was not published; no damaged result; no late
publish accepted.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.fleet.crew import Member, crew, go_together
from benchmarks.fleet.stores import STORES, Shared
from benchmarks.report import table

SECONDS = 2.0
SIZE = 1 << 20
STEPS = ("acquired", "compiling", "mid-compile", "storing", "publishing", "published", "listed", "kept")
STOPS = ("mid-compile", "publishing")


@dataclass
class Found:
    """Counts of keys; `takeovers` are seconds from an owner's death (or the wait's beginning) to the takeover."""

    takeovers: list[float] = field(default_factory=list)
    duplicates: int = 0
    lost: int = 0
    damaged: int = 0
    fenced: int = 0


def main() -> int:
    options = _options()
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    chance = random.Random(seed)
    rows = []
    for store in options.stores:
        for nearby in (False, True):
            stops = 0 if nearby else options.stops
            with tempfile.TemporaryDirectory(prefix="nbench-") as place:
                opened: AbstractContextManager[Shared] = STORES[store](Path(place))  # type: ignore[assignment]
                with opened as shared:
                    found = _measure(Path(place), shared, options, chance, stops=stops, nearby=nearby)
            rows.append(_row(shared.name, found, options, stops=stops, nearby=nearby))
    table(
        ("store", "waiters", "killed", "taken over", "after: p50", "longest", "goal <=", "twice", "lost", "damaged",
         "stopped", "fenced"),
        rows,
    )  # fmt: skip
    print(f"Lease {options.lease:g} s, compile {SECONDS:g} s; repeat with --seed {seed}. twice: compiles beyond the "
          "one that a dead or stopped owner costs.\nlost: published before the death and compiled again. damaged: "
          "results that are not whole, or differ between waiters.\nThe other keys were published before the "
          "kill, or its owner never had the lease.")  # fmt: skip
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.takeover", description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="owners killed for each store and kind of waiter")
    parser.add_argument("--stops", type=int, default=4, help="owners stopped past their lease for each store")
    parser.add_argument("--lease", type=float, default=15.0, help="seconds")
    parser.add_argument("--seed", type=int, help="of the random steps")
    parser.add_argument("--stores", nargs="+", choices=list(STORES), default=list(STORES))
    return parser.parse_args()


def _measure(
    place: Path, shared: Shared, options: argparse.Namespace, chance: random.Random, *, stops: int, nearby: bool
) -> Found:
    common = {"how": "ours", "url": shared.url, "seconds": SECONDS, "size": SIZE, "lease": options.lease}

    def on_host(name: str) -> dict[str, str]:
        """Nearby all are this machine's own; otherwise names make machines that cannot look at each other."""
        return {"local": str(place / "local")} if nearby else {"local": str(place / f"local-{name}"), "host": name}

    killed = [f"killed {number}" for number in range(options.kills)]
    stopped = [f"stopped {number}" for number in range(stops)]
    with crew(place, shared.environment) as start:
        dying = {
            key: start(
                keys=[key], fate="kill", phase=chance.choice(STEPS), after=chance.uniform(0, 0.01), **common,
                **on_host("a"),
            )
            for key in killed
        }  # fmt: skip
        stopping = {
            key: start(keys=[key], fate="stop", phase=STOPS[number % 2], **common, **on_host("a"))
            for number, key in enumerate(stopped)
        }
        owners = {**dying, **stopping}
        waiters = [
            start(keys=[*killed, *stopped], at_once=True, warm=True, **common, **on_host(name)) for name in ("b", "c")
        ]
        for waiter in waiters:
            waiter.wait_for("ready")
        go_together(owners.values())
        for key, owner in owners.items():
            owner.wait_for("phase", key=key, phase="acquired", or_end=True)
        go_together(waiters)
        for owner in dying.values():
            owner.wait()
        for key, owner in stopping.items():
            for waiter in waiters:
                waiter.wait_for("done", key=key)
            os.kill(owner.process.pid, signal.SIGCONT)
        for member in [*stopping.values(), *waiters]:
            if member.wait():
                raise RuntimeError(f"a client ended with {member.process.returncode}")
    return _judge(owners, waiters)


def _judge(owners: dict[str, Member], waiters: Sequence[Member]) -> Found:
    found = Found()
    for key, owner in owners.items():
        later = sum(len(waiter.all("compile", key=key)) for waiter in waiters)
        published = bool(owner.all("phase", key=key, phase="published"))
        found.duplicates += max(0, later - (0 if published else 1))
        found.lost += published and later > 0
        results = [event for waiter in waiters for event in waiter.all("done", key=key)]
        found.damaged += any(not event["whole"] for event in results) or len({it["sha256"] for it in results}) != 1
        found.fenced += sum(event["fenced"] for event in owner.all("done", key=key))
        if owner.all("dies"):
            found.takeovers += _takeovers(key, owner, waiters)
    return found


def _takeovers(key: str, owner: Member, waiters: Sequence[Member]) -> list[float]:
    died = owner.all("dies")[0]["at"]
    times = []
    for waiter in waiters:
        begun = waiter.all("begins")[0]["at"]
        if any(event["took_over"] for event in waiter.all("done", key=key)):
            times.append(waiter.all("phase", key=key, phase="acquired")[0]["at"] - max(died, begun))
    return times


def _row(store: str, found: Found, options: argparse.Namespace, *, stops: int, nearby: bool) -> tuple[str, ...]:
    times = found.takeovers
    return (
        store,
        "same host" if nearby else "other hosts",
        str(options.kills),
        str(len(times)),
        f"{statistics.median(times):.2f} s" if times else "",
        f"{max(times):.2f} s" if times else "",
        "at once" if nearby else f"{options.lease:g} s",
        str(found.duplicates),
        str(found.lost),
        str(found.damaged),
        str(stops) if stops else "",
        str(found.fenced) if stops else "",
    )


if __name__ == "__main__":
    sys.exit(main())
