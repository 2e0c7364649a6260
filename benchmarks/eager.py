"""Eager mode on the simulated device beside CPU PyTorch's: what an operator costs, a training step, and a start.

Goals for a warm 64x64 add: at most 100 us in order (each waited for), 30 us pipelined.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType

import torch

from benchmarks.report import in_turn, ms, ratio, table, us

BLOCK = 1000
BLOCKS = 15
STEPS = 30
PAUSE = 0.05


def gpt() -> ModuleType:
    """examples/gpt/train.py."""
    path = Path(__file__).parents[1] / "examples" / "gpt" / "train.py"
    spec = importlib.util.spec_from_file_location("gpt_train", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    operators()
    print()
    steps()
    print()
    starts()


def operators() -> None:
    a, b = torch.randn(64, 64), torch.randn(64, 64)
    c, d = a.to("neuron"), b.to("neuron")

    def in_order() -> None:
        for _ in range(BLOCK):
            c + d
            torch.neuron.synchronize()

    def pipelined() -> None:
        for _ in range(BLOCK):
            c + d
        torch.neuron.synchronize()

    def cpu() -> None:
        for _ in range(BLOCK):
            a + b

    times = in_turn({"in order": in_order, "pipelined": pipelined, "cpu": cpu}, BLOCKS, pause=PAUSE)
    each = {name: [seconds / BLOCK for seconds in found] for name, found in times.items()}
    table(
        (f"64x64 add, warm, blocks of {BLOCK}", "median", "best", "goal <="),
        [
            ("in order: each waited for", us(each["in order"]), us([min(each["in order"])]), "100 us"),
            ("pipelined", us(each["pipelined"]), us([min(each["pipelined"])]), "30 us"),
            ("CPU eager", us(each["cpu"]), us([min(each["cpu"])]), ""),
        ],
    )


def steps() -> None:
    """A step is waited for by reading its loss, on both."""
    train = gpt().train
    loops = {device: train(device, 10**6) for device in ("neuron", "cpu")}
    times = in_turn({d: lambda loop=loop: next(loop).item() for d, loop in loops.items()}, STEPS, pause=PAUSE)
    table(
        ("GPT training step, 2 layers, batch 8 of 64 bytes", "neuron", "CPU eager", "ratio"),
        [("forward, backward, AdamW", ms(times["neuron"]), ms(times["cpu"]), f"{ratio(times, 'neuron', 'cpu'):.1f}")],
    )


def starts() -> None:
    """One step of the GPT in a fresh process: nothing cached, all cached here, all cached in the shared tier alone."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="nbench-") as place:
        for how, local in (("cold", "one"), ("warm", "one"), ("warm, another host", "two")):
            environ = os.environ | {
                "NEURON_ENV_CACHE_URL": f"{place}/shared",
                "NEURON_ENV_CACHE_LOCAL_DIR": f"{place}/{local}",
            }
            began = time.monotonic()
            command = [sys.executable, "-m", "benchmarks.eager", "one-step"]
            done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
            found = json.loads(done.stdout.splitlines()[-1])
            rows.append(
                (
                    how,
                    str(found["plans"]),
                    str(found["compiles"]),
                    f"{found['seconds_compiling']:.1f} s",
                    f"{found['ended'] - began:.1f} s",
                )
            )
    table(
        ("GPT, to the end of the first step", "signatures", "NEFFs compiled", "compiling", "from process start"), rows
    )


def one_step() -> None:
    next(gpt().train("neuron", 1)).item()
    ended = time.monotonic()
    from torch_neuronx import _C
    from torch_neuronx.eager.models import builder

    stats = builder().cache.stats.to_json()
    print(json.dumps({**stats, "compiles": int(stats["compiles"]), "plans": _C.plan_count(), "ended": ended}))


if __name__ == "__main__":
    one_step() if sys.argv[1:] == ["one-step"] else main()
