"""Ctrl-C in the middle of the demo leaves nothing behind. `make demo` itself is too long for a test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]


def processes_of(place: Path) -> list[str]:
    """Command lines of the processes whose environment names a path below this one."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(place).encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def test_interrupted_while_instances_compile(tmp_path: Path) -> None:
    kept, temporary = tmp_path / "kept", tmp_path / "t"
    temporary.mkdir()
    short = Path(f"/tmp/nd-{os.getpid()}")  # a socket's path has room for about a hundred characters
    short.symlink_to(temporary)
    demo = subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / "demo" / "demo.py"), "--keep", str(kept)],
        env={**os.environ, "TMPDIR": str(short)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 100
        while not any((kept / "cache").rglob("*.json")):
            assert demo.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert processes_of(short)
        demo.send_signal(signal.SIGINT)
        said, _ = demo.communicate(timeout=60)
    finally:
        demo.kill()
        demo.communicate()
        short.unlink()
    assert demo.returncode == 130, said
    assert said.rstrip().endswith("interrupted; nothing is left running")
    assert processes_of(short) == []
    assert list(temporary.glob("neuron-demo-*")) == []
    locks = [sys.executable, "-m", "cli.main", "cache", "locks", "--json", "--cache-url", str(kept / "cache")]
    held = json.loads(subprocess.run(locks, capture_output=True, text=True, check=True).stdout)
    assert held["locks"] == []
