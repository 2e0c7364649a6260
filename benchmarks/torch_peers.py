"""The same modules on the simulated device, in CPU PyTorch eager, and under torch.compile's Inductor.

Run time in turn in one process; cold compile time, each in a fresh process with empty caches.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

import torch

from benchmarks.device import OnDevice
from benchmarks.report import in_turn, ms, ratio, table
from benchmarks.workloads import EXAMPLES, OPTIONS, input_arrays, program_of
from neuron_runtime.compiler.warm import WarmCompiler

ROUNDS = 30
COLD_ROUNDS = 2
GRAPHS = ("transformer block", "MiniLM 8x32")


def main() -> None:
    warnings.simplefilter("ignore")
    rows = []
    with WarmCompiler() as compiler, torch.no_grad():
        for name in GRAPHS:
            example = EXAMPLES[name]()
            program = program_of(example)
            device = OnDevice(compiler.compile(program.stablehlo, OPTIONS).neff, input_arrays(program, example))
            compiled = torch.compile(example.module)
            times = in_turn(
                {
                    "neuron": device.run,
                    "eager": lambda e=example: e.module(*e.args),
                    "inductor": lambda e=example, c=compiled: c(*e.args),
                },
                ROUNDS,
                pause=0.05,
            )
            rows.append(
                (
                    name,
                    ms(times["neuron"]),
                    ms(times["eager"]),
                    ms(times["inductor"]),
                    f"{ratio(times, 'neuron', 'eager'):.2f}",
                    f"{ratio(times, 'neuron', 'inductor'):.2f}",
                )
            )
    table(("run time", "simulated device", "torch eager", "Inductor", "to eager", "to Inductor"), rows)
    print()
    rows = []
    for name in GRAPHS:
        ours = [cold("neuron", name) for _ in range(COLD_ROUNDS)]
        theirs = [cold("inductor", name) for _ in range(COLD_ROUNDS)]
        a, b = statistics.median(ours), statistics.median(theirs)
        rows.append((name, f"{a:.2f} s", f"{b:.2f} s", f"{b / a:.1f}x"))
    table(("cold, module to first result", "capture+lower+compile+load+run", "Inductor", "faster by"), rows)


def cold(how: str, name: str) -> float:
    """Seconds in a fresh process, imports not counted."""
    with tempfile.TemporaryDirectory() as empty:
        environ = os.environ | {"TORCHINDUCTOR_CACHE_DIR": empty, "TMPDIR": empty}
        command = [sys.executable, "-m", "benchmarks.torch_peers", how, name]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def cold_run(how: str, name: str) -> float:
    example = EXAMPLES[name]()
    if how == "inductor":
        import torch._inductor.compile_fx

        start = time.perf_counter()
        torch.compile(example.module)(*example.args)
        return time.perf_counter() - start
    import torch_mlir.fx  # noqa: F401 - an import, as Inductor's above

    start = time.perf_counter()
    program = program_of(example)
    with WarmCompiler() as compiler:
        neff = compiler.compile(program.stablehlo, OPTIONS).neff
    OnDevice(neff, input_arrays(program, example)).run()
    return time.perf_counter() - start


if __name__ == "__main__":
    if len(sys.argv) == 3:
        warnings.simplefilter("ignore")
        with torch.no_grad():
            print(cold_run(sys.argv[1], sys.argv[2]))
    else:
        main()
