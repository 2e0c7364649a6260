from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from compiler_programs import ROOT


@pytest.fixture(scope="session")
def xla():
    from neuron_runtime.xla import Xla

    return Xla()


@pytest.fixture(scope="module")
def warm() -> Iterator:
    """One compiler for a whole module, whatever happens to its worker: each test must find it in working order."""
    from neuron_runtime.compiler.warm import WarmCompiler

    with WarmCompiler() as compiler:
        yield compiler


@pytest.fixture
def run_script() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run Python source in a process of its own, with warnings as errors; its failure is the test's."""

    def run(source: str, *arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", source, *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == 0, done.stderr
        return done

    return run


@pytest.fixture
def until() -> Callable[..., None]:
    """Poll a condition until it holds; fail at the deadline with what was waited for."""

    def wait(condition: Callable[[], object], what: str, seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                pytest.fail(f"waited {seconds} s in vain for {what}")
            time.sleep(0.01)

    return wait


@pytest.fixture
def gone() -> Callable[[int], bool]:
    """Has this process ended? (A zombie that nobody reaps has.)"""

    def check(pid: int) -> bool:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        return state in "ZX"

    return check


@pytest.fixture
def busy() -> Callable[[int], Callable[[], bool]]:
    """Has this process used a third of a second of processor time since now? Then it is compiling."""

    def ticks(pid: int) -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    def since_now(pid: int) -> Callable[[], bool]:
        before, enough = ticks(pid), os.sysconf("SC_CLK_TCK") // 3
        return lambda: ticks(pid) - before >= enough

    return since_now
