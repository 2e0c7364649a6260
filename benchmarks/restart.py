"""A service that starts over a store with 100,000 entries (B4): how soon it listens, and how soon it serves a hit.

`python -m benchmarks restart`: with an empty store, then with a full one without an index, and again after `kill -9`
with the index that the first life left. Beside it nginx, which knows nothing of what it serves, and a server that
looks through its directory before it listens, as build caches with an index in memory do. Goal: first hit within 1 s
of the start of listening, as far as the machine answers a trivial request in no time.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fleet.stores import Unavailable, free_port, process, program
from benchmarks.report import table
from cache_server.keys import KeyParts
from cache_server.manifest import NEFF_FILE, Blob, Manifest, Producer
from cache_server.store import LAYOUT, blob_path

ROUNDS = 3
_PATIENCE = 1200.0  # seconds

_NGINX = """
user root; daemon off; worker_processes 1; pid {place}/pid; error_log {place}/error.log;
events {{ worker_connections 64; }}
http {{ access_log off; client_body_temp_path {place}/b; proxy_temp_path {place}/p; fastcgi_temp_path {place}/f;
  uwsgi_temp_path {place}/u; scgi_temp_path {place}/s;
  server {{ listen 127.0.0.1:{port}; root {root}; }} }}
"""

# Walks and stats all files into a list in the order of their last use, and only then listens.
_SCANNER = """
import functools, http.server, os, sys
root, port = sys.argv[1], int(sys.argv[2])
known = []
for directory, _, names in os.walk(root):
    for name in names:
        path = os.path.join(directory, name)
        seen = os.stat(path)
        known.append((seen.st_atime, path, seen.st_size))
known.sort()
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=root)
http.server.ThreadingHTTPServer(("127.0.0.1", port), handler).serve_forever()
"""


@dataclass(frozen=True)
class Start:
    """Seconds from the start of the process: until it listens, answers a trivial request, has served one NEFF."""

    listens: float
    answers: float
    hit: float
    knows_all: float | None = None  # until its index has all


def main() -> int:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="nbench-", dir=options.place) as name:
        place = Path(name)
        begun = time.monotonic()
        paths = seed(place / "full", options.entries)
        print(f"{options.entries:,} entries and as many blobs seeded in {time.monotonic() - begun:.0f} s below {place}")
        starts = _measure(place, paths, options)
    base = statistics.median(it.hit for it in starts["ours, one entry"])
    rows = [_row(name, found, base, goal=name.startswith("ours")) for name, found in starts.items()]
    table(
        (f"{options.entries:,} entries", "listens", "first answer", "first hit", "of it after listening", "goal <=",
         "hit to one entry", "index has all"),
        rows,
    )  # fmt: skip
    print(f"From the start of the process, the interpreter's own start included; medians of {options.rounds}. A hit is "
          "a manifest and its blob,\nothers at each start. The files are in the page cache, as after a restart of a "
          "process, not of a machine.")  # fmt: skip
    return 0


def seed(store: Path, entries: int) -> list[tuple[str, str]]:
    """Fills a store with entries that any reader accepts; the key and the digest of some of them."""
    root, some = store / LAYOUT, []
    for group in ("blobs/sha256", "entries/default"):
        for number in range(256):
            (root / group / f"{number:02x}").mkdir(parents=True, exist_ok=True)
    # One manifest is made as always; the others differ from it in three digests, for a tenth of the time.
    likeness = _manifest("0" * 64, Blob("1" * 64, 64))
    text, key = likeness.encode(), likeness.key
    labelled = json.dumps(list(likeness.parts.to_json().items()), separators=(",", ":")).encode()
    for number in range(entries):
        data = b"%064d" % number
        blob, ir = hashlib.sha256(data).hexdigest(), hashlib.sha256(b"%d" % number).hexdigest()
        own = hashlib.sha256(labelled.replace(b"0" * 64, ir.encode())).hexdigest()
        made = text.replace(key.encode(), own.encode()).replace(b"0" * 64, ir.encode())
        _write(f"{root}/blobs/sha256/{blob[:2]}/{blob}", data)
        _write(f"{root}/entries/default/{own[:2]}/{own}.json", made.replace(b"1" * 64, blob.encode()))
        if number % max(1, entries // 50) == 0:
            assert _manifest(ir, Blob(blob, 64)).key == own
            some.append((own, blob))
    return some


def _manifest(ir: str, blob: Blob) -> Manifest:
    producer = Producer("host", 1, "user", "cc 1", 1000.0, 60.0)
    return Manifest(KeyParts(ir, "cc", "1", ("-O2",), "trn2", 2), {NEFF_FILE: blob}, 1, producer, 1060.0, "a graph")


def _write(path: str, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o664)
    os.write(file, data)
    os.close(file)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.restart", description=__doc__)
    parser.add_argument("--entries", type=int, default=100_000, help="1000000 takes some ten minutes")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of which the median counts")
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    parser.add_argument("--place", default=memory, help="directory for all files")
    return parser.parse_args()


def _measure(place: Path, paths: list[tuple[str, str]], options: argparse.Namespace) -> dict[str, list[Start]]:
    starts: dict[str, list[Start]] = {}
    turn = iter(paths * options.rounds)
    for number in range(options.rounds):
        [one] = seed(place / "empty", 1)
        _add(starts, "ours, one entry", _ours(place / "empty", place / f"none-{number}", one))
        # It is killed as soon as its index is complete, or at once: both are restarts that happen.
        state = place / f"state-{number}"
        last = number == options.rounds - 1
        _add(starts, "ours, no index yet", _ours(place / "full", state, next(turn), complete=last))
    for _ in range(options.rounds):
        _add(starts, "ours, with its index, after kill -9", _ours(place / "full", state, next(turn)))
    for name, server in (("nginx (knows nothing)", _nginx), ("looks through it first (Python)", _scanner)):
        try:
            for _ in range(options.rounds):
                _add(starts, name, server(place, next(turn)))
        except Unavailable as reason:
            print(f"without {name}: {reason}")
    return starts


def _add(starts: dict[str, list[Start]], name: str, start: Start) -> None:
    starts.setdefault(name, []).append(start)


def _ours(store: Path, state: Path, wanted: tuple[str, str], *, complete: bool = False) -> Start:
    port = free_port()
    command = [sys.executable, "-m", "cli.main", "cache", "serve", str(store), "--listen", f"127.0.0.1:{port}"]
    key, digest = wanted
    with _killed([*command, "--state-dir", str(state)], store.parent / "service.log") as begun:
        listens = _listening(port, begun)
        _get(port, "/healthz")
        answers = time.monotonic() - begun
        manifest = json.loads(_get(port, f"/v1/namespaces/default/entries/{key}"))
        assert manifest["files"][NEFF_FILE]["sha256"] == digest
        content = _get(port, f"/v1/namespaces/default/blobs/{digest}")
        hit = time.monotonic() - begun
        assert hashlib.sha256(content).hexdigest() == digest
        knows = None
        if complete:
            while not json.loads(_get(port, "/v1/stats"))["totals"]["complete"]:
                time.sleep(0.2)
            knows = time.monotonic() - begun
    return Start(listens, answers, hit, knows)


def _nginx(place: Path, wanted: tuple[str, str]) -> Start:
    nginx = program("nginx") or ("/usr/sbin/nginx" if Path("/usr/sbin/nginx").exists() else "")
    if not nginx:
        raise Unavailable("apt install nginx-extras")
    port = free_port()
    (place / "conf").write_text(_NGINX.format(place=place, port=port, root=place / "full" / LAYOUT))
    return _files([nginx, "-c", str(place / "conf")], place, port, wanted)


def _scanner(place: Path, wanted: tuple[str, str]) -> Start:
    port = free_port()
    root = place / "full" / LAYOUT
    return _files([sys.executable, "-c", _SCANNER, str(root), str(port)], place, port, wanted)


def _files(command: list[str], place: Path, port: int, wanted: tuple[str, str]) -> Start:
    key, digest = wanted
    begun = time.monotonic()
    with process(command, place / "peer.log"):
        listens = _listening(port, begun)
        _get(port, "/", fine=(200, 403))
        answers = time.monotonic() - begun
        _get(port, f"/entries/default/{key[:2]}/{key}.json")
        _get(port, f"/{blob_path(digest)}")
        return Start(listens, answers, time.monotonic() - begun)


@contextmanager
def _killed(command: list[str], log: Path) -> Iterator[float]:
    """A process that dies with the block, as by a crash; yields when it was started."""
    with log.open("ab") as output:
        begun = time.monotonic()
        started = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        yield begun
    finally:
        started.kill()
        started.wait()


def _listening(port: int, begun: float) -> float:
    while time.monotonic() - begun < _PATIENCE:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        with suppress(OSError):
            connection.connect()
            connection.close()
            return time.monotonic() - begun
        time.sleep(0.002)
    raise TimeoutError(f"nobody listens on port {port}")


def _get(port: int, path: str, fine: tuple[int, ...] = (200,)) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        data = answer.read()
    finally:
        connection.close()
    if answer.status not in fine:
        raise RuntimeError(f"GET {path}: {answer.status} {data[:200]!r}")
    return data


def _row(name: str, found: list[Start], base: float, *, goal: bool) -> tuple[str, ...]:
    def median(of: Callable[[Start], float]) -> str:
        return f"{statistics.median(map(of, found)):.3f} s"

    hit = statistics.median(it.hit for it in found)
    knows = [it.knows_all for it in found if it.knows_all is not None]
    return (
        name,
        median(lambda it: it.listens),
        median(lambda it: it.answers),
        median(lambda it: it.hit),
        median(lambda it: it.hit - it.listens),
        "1 s" if goal else "",
        f"{hit / base:.2f}",
        f"{statistics.median(knows):.1f} s" if knows else "",
    )


if __name__ == "__main__":
    sys.exit(main())
