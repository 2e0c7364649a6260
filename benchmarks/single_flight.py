"""A cold start of a fleet (B2): how often one graph is compiled, and how soon those who wait for it have it.

`python -m benchmarks single_flight`: clients on "hosts" (processes that share a local tier) ask for the same keys at
once; a compile is a sleep of two seconds. Goals: one compile a key, and waiters hold the NEFF 50 ms after the owner
began to publish it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fleet import compilers
from benchmarks.fleet.crew import Member, crew, go_together
from benchmarks.fleet.stores import STORES, Shared, Unavailable
from benchmarks.report import table

SECONDS = 2.0
SIZE = 1 << 20
# Clients, hosts, keys, rounds, and the systems that are left out, by the beginning of their names: those whose clients
# compile in turn take minutes, and 64 clients of moto, which is one process and one step at a time, measure moto.
CASES: tuple[tuple[int, int, int, int, tuple[str, ...]], ...] = (
    (8, 2, 1, 3, ()),
    (8, 4, 3, 1, ("ccache", "sccache")),
    (64, 4, 1, 1, ("ccache", "sccache", "ours, S3")),
)


@dataclass(frozen=True)
class Run:
    """`after`: seconds from the beginning of a publish until each waiter had the NEFF."""

    compiles: int
    wall: float
    after: Sequence[float]
    wrong: int


Measure = Callable[[Path, int, int, int], Run]


def our(store: str) -> Measure:
    def measure(place: Path, clients: int, hosts: int, keys: int) -> Run:
        opened: AbstractContextManager[Shared] = STORES[store](place)  # type: ignore[assignment]
        with opened as shared, crew(place, shared.environment) as start:
            members = [
                start(
                    how="ours",
                    url=shared.url,
                    local=str(place / f"local-{number % hosts}"),
                    host=f"h{number % hosts}",
                    lease=15.0,
                    **_work(keys),
                )
                for number in range(clients)
            ]
            return _told(members)

    return measure


def plain(place: Path, clients: int, hosts: int, keys: int) -> Run:
    """As JAX does on a shared directory: look, compile, write."""
    (place / "shared").mkdir()
    with crew(place, {}) as start:
        return _told([start(how="plain", url=str(place / "shared"), **_work(keys)) for _ in range(clients)])


def flock(*, shared: bool) -> Measure:
    """A lock file a key, on the shared directory, or a host's own as in TorchNeuron."""

    def measure(place: Path, clients: int, hosts: int, keys: int) -> Run:
        members: list[Member] = []
        (place / "shared").mkdir()
        with crew(place, {}) as start:
            for number in range(clients):
                locks = place / ("locks" if shared else f"locks-{number % hosts}")
                locks.mkdir(exist_ok=True)
                members.append(start(how="flock", url=str(place / "shared"), locks=str(locks), **_work(keys)))
            return _told(members)

    return measure


def built(by: Callable[[Path, int], AbstractContextManager[compilers.Build]]) -> Measure:
    def measure(place: Path, clients: int, hosts: int, keys: int) -> Run:
        with by(place, hosts) as build:
            found = compilers.build_together(place, build, clients=clients, keys=keys, seconds=SECONDS)
        return Run(found.compiles, found.wall, (), found.wrong)

    return measure


SYSTEMS: dict[str, Measure] = {
    "ours, directory": our("directory"),
    "ours, S3 (moto)": our("s3"),
    "ours, service": our("service"),
    "flock on one directory (one kernel)": flock(shared=True),
    "flock a host, shared directory": flock(shared=False),
    "plain writes, as JAX": plain,
    "ccache, shared directory": built(compilers.ccache_directory),
    "ccache, http (our /ac, /cas)": built(compilers.ccache_http),
    "sccache, a daemon a host + redis": built(compilers.sccache_redis),
    "sccache, one daemon": built(compilers.sccache_alone),
}


def main() -> int:
    options = _options()
    cases = CASES
    if options.clients:
        cases = ((options.clients, options.hosts, options.keys, options.rounds, ()),)
    rows = []
    missing: dict[str, str] = {}
    for clients, hosts, keys, rounds, without in cases:
        for name, measure in SYSTEMS.items():
            if options.systems and not any(word in name for word in options.systems):
                continue
            if name.startswith(without):
                continue
            runs = []
            for _ in range(rounds):
                with tempfile.TemporaryDirectory(prefix="nbench-") as place:
                    try:
                        runs.append(measure(Path(place), clients, hosts, keys))
                    except Unavailable as reason:
                        missing[name] = str(reason)
                        break
            if runs:
                rows.append(_row(clients, hosts, keys, name, runs))
    for name, reason in missing.items():
        print(f"without {name}: {reason}")
    table(
        ("clients x hosts x keys", "system", "compiles", "goal", "wall", "to one compile", "waiters p50", "p99", "goal",
         "wrong"),
        rows,
    )  # fmt: skip
    print(f"A compile sleeps {SECONDS:g} s; to one compile: wall to that of the compiles that are needed. waiters: "
          "from the beginning of the\nowner's publish to the NEFF, verified, in the hands of who waited. wrong: "
          "damaged results. Every client is a process of its own.")  # fmt: skip
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.single_flight", description=__doc__)
    parser.add_argument("--clients", type=int, help="one case alone, with this many clients")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--keys", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3, help="of which the median counts")
    parser.add_argument("--systems", nargs="+", help="words in the names of the systems to run")
    return parser.parse_args()


def _work(keys: int) -> dict[str, object]:
    return {"keys": [f"graph {number}" for number in range(keys)], "seconds": SECONDS, "size": SIZE}


def _told(members: Sequence[Member]) -> Run:
    begun = go_together(members)
    for member in members:
        if member.wait():
            raise RuntimeError(f"a client ended with {member.process.returncode}")
    events = [event for member in members for event in member.events]
    done = [event for event in events if event["what"] == "done"]
    published = {event["key"]: event["at"] for event in events if event.get("phase") == "publishing"}
    after = [event["at"] - published[event["key"]] for event in done if event["outcome"] in ("local_hit", "shared_hit")]
    return Run(
        compiles=sum(event["what"] == "compile" for event in events),
        wall=max(event["at"] for event in done) - begun,
        after=after,
        wrong=sum(not event["whole"] for event in done),
    )


def _row(clients: int, hosts: int, keys: int, name: str, runs: Sequence[Run]) -> tuple[str, ...]:
    after = sorted(seconds for run in runs for seconds in run.after)
    wall = statistics.median(run.wall for run in runs)
    ours = name.startswith("ours")
    return (
        f"{clients} x {hosts} x {keys}",
        name,
        f"{statistics.median(run.compiles for run in runs):g}",
        str(keys) if ours else "",
        f"{wall:.2f} s",
        f"{wall / (SECONDS * keys):.2f}",
        f"{statistics.median(after) * 1e3:.0f} ms" if after else "",
        f"{after[int(len(after) * 0.99)] * 1e3:.0f} ms" if after else "",
        "50 ms" if ours else "",
        str(sum(run.wrong for run in runs)),
    )


if __name__ == "__main__":
    sys.exit(main())
