"""The bytes that a compile cache hashes depend on the program alone."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.torch

PROGRAM = """
import hashlib, sys
import torch
from torch_neuronx import Program

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8))
        self.register_buffer("seen", torch.zeros(2, 8))
    def forward(self, x):
        y = self.inner(x)
        self.seen[:, 1:] = y[:, 1:]
        return {"sorted": torch.sort(y), "const": y + torch.tensor([1.0] * 8), "index": y[torch.tensor([-1, 0])]}

program = Program.build(Model(), (torch.ones(2, 4),))
print(hashlib.sha256(program.stablehlo).hexdigest())
print(program.lowered.text())
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The same program from two files in two directories, by two processes with other hash seeds."""
    outputs = []
    for seed, padding in (("1", ""), ("2", "\n" * 7)):
        folder = tmp_path_factory.mktemp(f"run{seed}")
        script = folder / f"model{seed}.py"
        script.write_text(padding + PROGRAM)
        env = {**os.environ, "PYTHONHASHSEED": seed, "HOSTNAME": f"host{seed}", "RANK": seed}
        done = subprocess.run(
            [sys.executable, str(script)], cwd=folder, env=env, capture_output=True, text=True, timeout=90, check=True
        )
        outputs.append(done.stdout)
    return outputs


def test_processes_agree_on_every_byte(runs):
    assert runs[0] == runs[1]


def test_no_path_name_or_location_is_in_the_text(runs):
    text = runs[0].partition("\n")[2]
    assert "func.func @main(" in text
    for leak in ("loc(", "model1", "/", "debug", "Model", "seen", "inner"):
        assert leak not in text


def test_nothing_but_stablehlo_is_in_the_text(runs):
    for dialect in ("torch.", "arith.", "tensor.", "chlo.", "dense_resource"):
        assert dialect not in runs[0]


def test_the_compiler_accepts_the_artifact(xla):
    import torch

    from neuron_runtime.xla import Xla
    from torch_neuronx import Program

    program = Program.build(torch.nn.Linear(2, 3), (torch.ones(1, 2),))
    executable = Xla().compile(Xla().portable(program.stablehlo))
    assert executable.inputs == tuple(entry.spec for entry in program.inputs)
    assert executable.outputs == program.outputs


def test_importing_the_package_imports_neither_torch_nor_mlir():
    code = "import sys, torch_neuronx; print(sorted({'torch', 'torch_mlir', 'numpy', 'jaxlib'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "[]"
