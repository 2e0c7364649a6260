"""Compile slots: never more compilers on a host than it has room for, and no slot that a dead process keeps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cache_kit import DEADLINE, eventually, open_cache, parts

from cache_server import CacheError, CacheSettings, Waiting
from cache_server.hostcapacity import available_memory, processors
from cache_server.slots import QUEUED, CompileSlots, Queue, slots_for

GIB = 1 << 30
HOLDER = """
import sys
from pathlib import Path
from cache_server.slots import CompileSlots
try:
    slots = CompileSlots(Path(sys.argv[1]), 1, memory_each=1)
    with slots.hold(patience=60, tell=lambda queue: print("waits", flush=True)):
        print("holds", flush=True)
        sys.stdin.read()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.fixture
def holders(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that want the only slot below `tmp_path`; the first has it."""
    children = [start(tmp_path)]
    assert read(children[0]) == "holds"
    yield children
    for child in children:
        child.kill()
        child.wait()
        for stream in (child.stdin, child.stdout):
            assert stream is not None
            stream.close()


def start(tmp_path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "slots")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def read(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def slots(tmp_path: Path, count: int | None = 1) -> CompileSlots:
    return CompileSlots(tmp_path / "slots", count, memory_each=GIB)


def test_sixty_four_processes_at_once_never_run_more_compiles_than_there_are_slots(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    config = {
        "local": str(tmp_path / "local"),
        "journal": str(tmp_path / "journal"),
        "slots": 2,
        "processes": 64,
        "seconds": 0.02,
    }
    worker = Path(__file__).with_name("slots_worker.py")
    run = subprocess.run(
        [sys.executable, str(worker), json.dumps(config)], capture_output=True, text=True, timeout=DEADLINE
    )
    assert run.returncode == 0, run.stderr
    at_once = [int(path.name.rpartition("-")[2]) for path in (tmp_path / "journal").iterdir()]
    assert len(at_once) == 64
    assert max(at_once) <= 2


def test_killed_holder_frees_its_slot_at_once(tmp_path: Path, holders: list[subprocess.Popen[str]]) -> None:
    told: list[Queue] = []

    def kill_it(queue: Queue) -> None:
        told.append(queue)
        holders[0].kill()

    with slots(tmp_path).hold(patience=DEADLINE, tell=kill_it) as held:
        assert held
    assert told[0].holders == (f"pid {holders[0].pid}",)
    assert told[0].slots == 1


def test_interrupted_waiter_leaves_and_takes_nothing(tmp_path: Path, holders: list[subprocess.Popen[str]]) -> None:
    holders.append(start(tmp_path))
    assert read(holders[1]) == "waits"
    holders[1].send_signal(signal.SIGINT)
    assert read(holders[1]) in ("waits", "interrupted")
    assert holders[1].wait(DEADLINE) == 0
    holders[0].kill()
    with slots(tmp_path).hold(patience=DEADLINE) as held:
        assert held


def test_wait_ends_when_no_slot_changes_hands(tmp_path: Path) -> None:
    with slots(tmp_path).hold(patience=DEADLINE):
        outcome: list[bool] = []

        def other() -> None:
            with slots(tmp_path).hold(patience=0.05) as held:
                outcome.append(held)

        thread = threading.Thread(target=other)
        thread.start()
        thread.join(DEADLINE)
    assert outcome == [False]


def test_compile_that_asks_the_cache_does_not_wait_for_its_own_slot(tmp_path: Path) -> None:
    cache = open_cache(tmp_path, compile_slots=1)
    outer = cache.get_or_compile(parts("outer"), lambda: cache.get_or_compile(parts("inner"), lambda: b"inner").neff)
    assert outer.neff == b"inner"
    assert cache.stats.compiles == 2


def test_waiting_is_told_and_the_lease_is_kept(tmp_path: Path, holders: list[subprocess.Popen[str]]) -> None:
    cache = open_cache(tmp_path, compile_slots=1, lease_seconds=0.3)
    cache.slots = slots(tmp_path)
    assert cache.storage is not None
    storage = cache.storage
    name = storage.store.record_name(parts().key)
    told: list[Waiting] = []
    versions: set[str] = set()

    def look(sign: Waiting) -> None:
        told.append(sign)
        seen = eventually(lambda: storage.records.read(name), "the lease is there")
        eventually(lambda: b"waiting for a slot" in storage.records.read(name).data, "the lease says what it waits for")
        versions.update((seen.version, storage.records.read(name).version))
        if len(told) == 2:
            holders[0].kill()

    cache.progress = look
    result = cache.get_or_compile(parts(), lambda: b"neff", label="decode")
    assert (result.outcome, result.compile_seconds < 1.0) == ("compiled", True)
    assert len(versions) > 1  # renewed meanwhile
    assert {(sign.phase, sign.for_slot) for sign in told} == {(QUEUED, True)}
    assert (told[0].label, told[0].owner) == ("decode", f"pid {holders[0].pid} on {cache.owner.host}")
    assert cache.stats.seconds_queued > 0


def test_directory_that_cannot_hold_locks_limits_nothing(tmp_path: Path) -> None:
    (tmp_path / "slots").write_text("in the way")
    with slots(tmp_path).hold(patience=DEADLINE) as held:
        assert not held


def test_directory_that_others_can_enter_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "slots").mkdir(mode=0o755)
    with slots(tmp_path).hold(patience=DEADLINE) as held:
        assert not held
    assert list((tmp_path / "slots").iterdir()) == []


def test_no_limit(tmp_path: Path) -> None:
    with slots(tmp_path, 0).hold(patience=0) as held:
        assert not held
    assert not (tmp_path / "slots").exists()


@pytest.mark.parametrize(
    ("cpus", "memory", "expected"),
    [(1, None, 1), (2, 64 * GIB, 1), (16, 64 * GIB, 4), (128, 64 * GIB, 8), (128, GIB, 1), (192, None, 48)],
)
def test_default_number_follows_processors_and_memory(cpus: int, memory: int | None, expected: int) -> None:
    assert slots_for(cpus, memory, 8 * GIB) == expected


def test_capacity_is_that_of_the_container(tmp_path: Path) -> None:
    def write(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    assert available_memory(tmp_path) is None
    write("proc/meminfo", "MemTotal: 99999999 kB\nMemAvailable: 1000 kB\n")
    assert available_memory(tmp_path) == 1_024_000
    write("proc/self/cgroup", "0::/pod/box\n")
    write("sys/fs/cgroup/pod/box/memory.max", "max\n")
    write("sys/fs/cgroup/pod/memory.max", "500000\n")
    write("sys/fs/cgroup/pod/memory.current", "400000\n")
    write("sys/fs/cgroup/pod/memory.stat", "anon 5\ninactive_file 100000\n")
    assert available_memory(tmp_path) == 200_000
    write("sys/fs/cgroup/cpu.max", "100000 100000\n")
    assert processors(tmp_path) == 1
    write("proc/self/cgroup", "4:memory:/box\n1:cpu,cpuacct:/../..\n")
    write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "9223372036854771712\n")
    write("sys/fs/cgroup/memory/memory.limit_in_bytes", "300000\n")
    write("sys/fs/cgroup/memory/memory.usage_in_bytes", "400000\n")
    assert available_memory(tmp_path) == 0
    write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1")
    assert processors(tmp_path) == len(os.sched_getaffinity(0))


def test_settings(tmp_path: Path) -> None:
    def read(**environ: str) -> CacheSettings:
        return CacheSettings.from_environment({"XDG_CACHE_HOME": str(tmp_path), **environ})

    assert (read().compile_slots, read().compile_memory) == (None, 8 * GIB)
    found = read(NEURON_ENV_COMPILE_SLOTS="3", NEURON_ENV_COMPILE_MEMORY="16GiB")
    assert (found.compile_slots, found.compile_memory) == (3, 16 * GIB)
    assert read(NEURON_ENV_COMPILE_SLOTS="auto").compile_slots is None
    for name, value in [
        ("NEURON_ENV_COMPILE_SLOTS", "-1"),
        ("NEURON_ENV_COMPILE_SLOTS", "many"),
        ("NEURON_ENV_COMPILE_MEMORY", "much"),
        ("NEURON_ENV_COMPILE_MEMORY", "0"),
    ]:
        with pytest.raises(CacheError):
            read(**{name: value})
