"""Two hundred steps leave nothing behind on the way; an interrupted program leaves nothing behind at all."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from device_kit import DeviceHost

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def held(neuron: Any) -> dict[str, Any]:
    """What a leak would make grow."""
    from torch_neuronx import _C
    from torch_neuronx.eager.models import _loaded

    neuron.synchronize()
    me = Path("/proc/self")
    return {
        "memory": neuron.memory_allocated(),
        "reserved": neuron.memory_reserved(),
        "plans": _C.plan_count(),
        "models": len(_loaded),
        "descriptors": len(list((me / "fd").iterdir())),
        "threads": len(list((me / "task").iterdir())),
        "children": sorted(
            child for task in (me / "task").iterdir() for child in (task / "children").read_text().split()
        ),
    }


@pytest.mark.slow
def test_two_hundred_steps_hold_what_two_did(tracked: Any, neuron: Any) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.LayerNorm(32), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 4)
    ).to("neuron")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 200)
    inputs, labels = torch.randn(64, 16), torch.arange(64) % 4
    rates, before = [], None
    for step in range(200):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs.to("neuron")), labels.to("neuron"))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        rates.append(schedule.get_last_lr()[0])
        if step == 2:
            before = held(neuron)
    assert held(neuron) == before
    assert len(set(rates)) == 200
    assert tracked.get_fallback_ops() == {}
    assert loss.item() < 1.5


LOOP = """
    import sys, torch
    model = torch.nn.Sequential(torch.nn.Linear(8, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, 3)).to("neuron")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(100_000):
        optimizer.zero_grad()
        loss = model(torch.ones(4, 8, device="neuron")).square().sum()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(step, loss.item(), flush=True)
"""


@pytest.fixture
def lonely() -> Iterator[DeviceHost]:
    """A host of its own, so that what is left on it is the program's."""
    directory = Path(tempfile.mkdtemp(prefix="nrt-"))
    host = DeviceHost(directory / "run", directory / "cache")
    try:
        yield host
    finally:
        host.stop()
        shutil.rmtree(directory, ignore_errors=True)


def compiling(host: DeviceHost, process: subprocess.Popen[str]) -> bool:
    del process
    return any((host.cache / "shared").rglob("*"))


def stepping(host: DeviceHost, process: subprocess.Popen[str]) -> bool:
    del host
    assert process.stdout is not None
    return process.stdout.readline().startswith("20 ")


@pytest.mark.parametrize("moment", [compiling, stepping])
def test_ctrl_c_leaves_nothing(lonely: DeviceHost, moment: Callable[..., bool]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(LOOP).replace("WIDTH", "24")],
        env={**os.environ, **lonely.settings(), "NEURON_ENV_RUNTIME_IDLE_TIMEOUT": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 100
        while not moment(lonely, process):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.005)
        others = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
        process.communicate()
    assert errors.rstrip().endswith("KeyboardInterrupt"), errors
    # CPython forgets the signal, and says 1, where another thread ran source code in the meantime.
    assert process.returncode in (-signal.SIGINT, 1)
    lonely.stop()  # the daemon serves other programs too
    for pid in others:
        gone(pid)
    listing = subprocess.run(
        [sys.executable, "-m", "cli.main", "cache", "locks", "--json"],
        env={**os.environ, **lonely.settings()}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(listing.stdout)["locks"] == []
    assert not list(lonely.runtime.glob("*.sock*"))
    left = [line for line in Path("/proc").glob("[0-9]*/environ") if names(line, str(lonely.runtime))]
    assert left == []


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path("/proc").glob(f"{pid}/task/*/children"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            for child in map(int, task.read_text().split()):
                found += [child, *descendants(child)]
    return found


def gone(pid: int) -> None:
    """Waits for the end of a process that is not a child of this one."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], 20)[0], f"{pid} lives"
    finally:
        os.close(descriptor)


def names(environ: Path, text: str) -> bool:
    try:
        return text.encode() in environ.read_bytes()
    except OSError:
        return False
