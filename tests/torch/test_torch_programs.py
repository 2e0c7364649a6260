"""The main job: a module captured, compiled once through the cache, run by the daemon, and compared with the CPU."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
FACTORIES = """
import torch


class Counter(torch.nn.Module):
    '''Adds its input to a total that it keeps; returns a tuple, a dict and a constant.'''

    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.scale = torch.nn.Parameter(torch.full((3,), 2.0))

    def forward(self, x):
        self.total.add_(x)
        return self.total * self.scale, {"sum": x.sum(), "none": None}


def counter():
    return Counter().eval(), (torch.ones(3),)


def half():
    torch.manual_seed(0)
    return torch.nn.Linear(8, 4).bfloat16().eval(), (torch.randn(2, 8, dtype=torch.bfloat16),)


def broken():
    raise ValueError("no weights here")
"""


class Bench:
    """A runtime and a shared cache of their own, and `neuron-env` to use them with."""

    def __init__(self, place: Path) -> None:
        self.place = place
        (place / "factories.py").write_text(FACTORIES)
        self.environ = {
            **{k: v for k, v in os.environ.items() if not k.startswith("NEURON_")},
            "NEURON_ENV_RUNTIME_DIR": str(place / "run"),
            "NEURON_ENV_CACHE_URL": str(place / "shared"),
            "NO_COLOR": "1",
        }

    def neuron_env(self, *args: str, tier: str = "tier", code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "cli.main", *args],
            env=self.environ | {"NEURON_ENV_CACHE_LOCAL_DIR": str(self.place / tier)},
            cwd=self.place,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done

    def document(self, *args: str, tier: str = "tier") -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.neuron_env(*args, "--json", tier=tier).stdout)
        return found


@pytest.fixture
def bench() -> Iterator[Bench]:
    place = Path(tempfile.mkdtemp(prefix="nprog-"))
    place.chmod(0o700)
    bench = Bench(place)
    try:
        yield bench
    finally:
        bench.neuron_env("runtime", "stop")
        shutil.rmtree(place, ignore_errors=True)


def test_a_program_is_compiled_once_and_its_result_is_the_cpus(bench: Bench) -> None:
    first = bench.document("run", "factories.py:half", "--repeat", "1", "--tolerance", "0.02")
    assert first["simulated"] is True
    (program,) = first["programs"]
    assert program["outcome"] == "compiled"
    assert program["native"] is True
    assert program["max_difference"] <= 0.02
    (again,) = bench.document("run", "factories.py:half", "--repeat", "1")["programs"]
    assert (again["outcome"], again["key"]) == ("local_hit", program["key"])
    (elsewhere,) = bench.document("compile", "factories.py:half", tier="another-host")["programs"]
    assert (elsewhere["outcome"], elsewhere["key"]) == ("shared_hit", program["key"])
    assert elsewhere["saved_seconds"] > 0


def test_compile_writes_a_neff_that_neff_info_and_the_runtime_take(bench: Bench) -> None:
    said = bench.neuron_env("compile", "factories.py:counter", "-o", "counter.neff").stdout
    assert said.startswith("counter: compiled here in ")
    info = bench.neuron_env("neff", "info", "counter.neff").stdout
    assert "SIMULATED" in info
    bench.neuron_env("neff", "verify", "counter.neff")


def test_another_target_lnc_or_level_is_another_key(bench: Bench) -> None:
    base = bench.document("compile", "factories.py:half")["programs"][0]["key"]
    for option in (("--target", "trn3"), ("--lnc", "1"), ("-O", "1")):
        (program,) = bench.document("compile", "factories.py:half", *option)["programs"]
        assert program["outcome"] == "compiled"
        assert program["key"] != base


def test_mistakes_are_told_with_what_to_type(bench: Bench) -> None:
    for arguments, what in (
        (("compile", "factories.py:missing"), "has no `missing`"),
        (("compile", "nowhere.py:f"), "there is no file `nowhere.py`"),
        (("compile", "factories.py:broken"), "raised ValueError: no weights here"),
        (("run", "factories"), "does not name a factory"),
    ):
        done = bench.neuron_env(*arguments, code=1)
        assert what in done.stderr
        assert "hint:" in done.stderr
        assert "Traceback" not in done.stderr


def test_state_that_a_call_changes_stays_on_the_device(bench: Bench) -> None:
    program = """
import json, torch, factories
from cache_server import NeffCache
from neuron_runtime.client import current_runtime
from neuron_runtime.compiler.warm import WarmCompiler
from torch_neuronx import Program
from torch_neuronx.build import NeffBuilder, compile_options
from torch_neuronx.loaded import DeviceWeights, LoadedProgram

if __name__ == "__main__":
    module, args = factories.counter()
    program = Program.build(module, args)
    session = current_runtime()
    with WarmCompiler() as compiler:
        neff = NeffBuilder(NeffCache.open(), compiler).build(program, compile_options(session.target, session.lnc)).neff
    weights = DeviceWeights(session)
    one, other = (LoadedProgram(program, neff, weights) for _ in range(2))
    for _ in range(3):
        scaled, rest = one(torch.ones(3))
    alone, _ = other(torch.full((3,), 5.0))
    print(json.dumps([scaled.tolist(), rest["sum"].item(), rest["none"], alone.tolist(), module.total.tolist()]))
"""
    (bench.place / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=bench.place, env=bench.environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[6.0] * 3, 3.0, None, [10.0] * 3, [0.0] * 3]
