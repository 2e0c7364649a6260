"""Compiled training steps on the simulated device beside CPU eager and Inductor, and what it takes to get to the first.

A step is forward, loss and backward, waited for. Starts are whole processes with nothing cached, then with all cached.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.nn import functional

from benchmarks.report import in_turn, ms, ratio, table

KINDS = ("gpt", "cnn")
WAYS = ("neuron", "inductor", "eager")
ROUNDS = 10


def main() -> None:
    rows = []
    for kind in KINDS:
        times = in_turn({way: step_of(kind, way) for way in WAYS}, ROUNDS, pause=0.05)
        rows.append(
            (
                kind,
                *(ms(times[way]) for way in WAYS),
                f"{ratio(times, 'neuron', 'inductor'):.2f}",
                f"{ratio(times, 'neuron', 'eager'):.2f}",
            )
        )
    table(("forward and backward", "neuron", "Inductor", "CPU eager", "to Inductor", "to eager"), rows)
    print()
    starts()


def starts() -> None:
    rows = []
    for kind in KINDS:
        with tempfile.TemporaryDirectory(prefix="nbench-") as place:
            seconds = {
                (way, how): _start(kind, way, place) for way in ("neuron", "inductor") for how in ("cold", "warm")
            }
        cold, warm = seconds["neuron", "cold"], seconds["neuron", "warm"]
        inductor = seconds["inductor", "cold"]
        rows.append(
            (kind, *(f"{value:.1f} s" for value in seconds.values()), f"{inductor / cold:.2f}", f"{cold / warm:.2f}")
        )
    names = (
        "neuron cold",
        "neuron warm",
        "Inductor cold",
        "Inductor warm",
        "cold: Inductor/neuron",
        "neuron: cold/warm",
    )
    table(("process to its first step", *names), rows)


def step_of(kind: str, way: str) -> Callable[[], object]:
    """Forward and backward of a model of the examples; reading the loss is what waits."""
    torch.manual_seed(0)
    model, given, wanted = _model(kind)
    if way == "neuron":
        model, given, wanted = model.to("neuron"), given.to("neuron"), wanted.to("neuron")
    called: Any = model if way == "eager" else torch.compile(model, backend=way, fullgraph=True)

    def step() -> float:
        model.zero_grad()
        loss = functional.cross_entropy(called(given).flatten(0, -2), wanted.flatten())
        loss.backward()
        if way == "neuron":
            torch.neuron.synchronize()
        return loss.item()

    return step


def _model(kind: str) -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
    if kind == "gpt":
        return _example("gpt").GPT(), torch.randint(256, (8, 64)), torch.randint(256, (8, 64))
    return _example("digits").Reader(), torch.rand(50, 1, 8, 8), torch.randint(10, (50,))


def _example(folder: str) -> ModuleType:
    path = Path(__file__).parents[1] / "examples" / folder / "train.py"
    spec = importlib.util.spec_from_file_location(f"{folder}_train", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _start(kind: str, way: str, place: str) -> float:
    """Seconds of a process that makes one step. Both keep what they compiled below `place`."""
    environ = os.environ | {
        "NEURON_ENV_CACHE_URL": f"{place}/shared",
        "NEURON_ENV_CACHE_LOCAL_DIR": f"{place}/local",
        "TORCHINDUCTOR_CACHE_DIR": f"{place}/inductor",
    }
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "benchmarks.compile", "one-step", kind, way],
        env=environ,
        check=True,
        capture_output=True,
    )
    return time.perf_counter() - began


if __name__ == "__main__":
    if sys.argv[1:2] == ["one-step"]:
        step_of(*sys.argv[2:4])()
    else:
        main()
