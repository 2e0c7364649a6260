"""Programs to compile, clients in processes of their own, and ways to wait for what they do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from neuron_runtime.protocol.paths import RuntimePaths
from neuron_runtime.tools.snapshot import stop_daemon, take_snapshot

DEADLINE_S = 30.0

ADD = """
func.func public @main(%a: tensor<64x64xf32>, %b: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %0 = stablehlo.add %a, %b : tensor<64x64xf32>
  return %0 : tensor<64x64xf32>
}
"""

# Squares a matrix of ones, scaled so that it stays one, as often as `rounds` says: seconds of honest work.
SLOW = """
func.func public @main(%x: tensor<256x256xf32>, %rounds: tensor<i32>) -> tensor<256x256xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %scale = stablehlo.constant dense<0.00390625> : tensor<256x256xf32>
  %r:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i32>, tensor<256x256xf32>
   cond {
    %c = stablehlo.compare LT, %i, %rounds : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %p = stablehlo.dot_general %v, %v, contracting_dims = [1] x [0]
      : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
    %s = stablehlo.multiply %p, %scale : tensor<256x256xf32>
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %s : tensor<i32>, tensor<256x256xf32>
  }
  return %r#1 : tensor<256x256xf32>
}
"""


def wait_until(condition: Callable[[], Any], what: str, deadline: float = DEADLINE_S) -> Any:
    """The first true value of `condition`; fails the test, naming `what`, when there is none in time."""
    until = time.monotonic() + deadline
    while time.monotonic() < until:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    pytest.fail(f"waited {deadline:g} s in vain for: {what}")


def process_alive(pid: int) -> bool:
    """False for a zombie as well: it holds nothing any more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def descendants(pid: int) -> list[int]:
    """Live processes below `pid`."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents[int(entry.name)] = int(fields[1])
    found: list[int] = []
    level = [pid]
    while level:
        level = [child for child, parent in parents.items() if parent in level]
        found.extend(level)
    return found


class Runtime:
    """One daemon's place: its environment, the clients started in it, and what it says of itself."""

    def __init__(self, directory: Path, neffs: Path) -> None:
        self.paths = RuntimePaths(directory)
        self.neffs = neffs
        self.environ = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("NEURON_", "XDG_"))},
            "NEURON_ENV_RUNTIME_DIR": str(directory),
            "NEURON_ENV_RUNTIME_IDLE_TIMEOUT": "60",
        }
        self.clients: list[subprocess.Popen[str]] = []

    def start(self, source: str, **environ: str) -> subprocess.Popen[str]:
        """Runs a client program; `nrt`, `np`, `NEFFS`, and `say` (a line to the test) are there."""
        prologue = textwrap.dedent(
            f"""
            import os, sys, time, pathlib
            import numpy as np
            from neuron_runtime import client as nrt
            NEFFS = pathlib.Path({str(self.neffs)!r})
            def say(*words): print(*words, flush=True)
            """
        )
        client = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", prologue + textwrap.dedent(source)],
            env=self.environ | environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.clients.append(client)
        return client

    def run(self, source: str, *, within: float = DEADLINE_S * 3, **environ: str) -> str:
        """Runs a client program to its end; what it said. Fails the test when it fails, or takes over `within` s."""
        client = self.start(source, **environ)
        out, err = client.communicate(timeout=within)
        assert client.returncode == 0, err
        return out

    def snapshot(self) -> dict[str, Any]:
        snapshot = take_snapshot(self.paths)
        assert snapshot is not None, "the daemon does not answer"
        return snapshot

    def owners(self) -> dict[int, int]:
        """Core -> pid, as the daemon has it."""
        return {int(core): p["pid"] for p in self.snapshot()["processes"] for core in p["cores"]}

    def close(self) -> None:
        for client in self.clients:
            if client.poll() is None:
                client.send_signal(signal.SIGCONT)
                client.kill()
            client.wait()
            for stream in (client.stdin, client.stdout, client.stderr):
                if stream is not None:
                    stream.close()
        stop_daemon(self.paths)


def line(client: subprocess.Popen[str]) -> str:
    """The client's next line; fails the test with its stderr when it ends instead."""
    assert client.stdout is not None
    text = client.stdout.readline()
    if not text:
        assert client.stderr is not None
        client.wait(timeout=DEADLINE_S)
        pytest.fail(f"the client ended with {client.returncode}: {client.stderr.read()}")
    return text.strip()


def go_on(client: subprocess.Popen[str]) -> None:
    """Lets a client that waits in `input()` go on."""
    assert client.stdin is not None
    client.stdin.write("\n")
    client.stdin.flush()
