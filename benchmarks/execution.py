"""Execution through the daemon against the same StableHLO in-process in jax.

Goals: at most 1.05x for graphs over 5 ms; for a tiny graph at most 60 us a round trip, and 25 us amortised when
executions are queued.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.interpreters import mlir
from jaxlib import _jax
from jaxlib.mlir.dialects import stablehlo

from benchmarks.device import OnDevice
from benchmarks.report import in_turn, ms, ratio, table, us
from benchmarks.workloads import EXAMPLES, OPTIONS, input_arrays, program_of
from neuron_runtime.compiler.warm import WarmCompiler

ROUNDS = 40
BLOCKS = 15
TINY = 1000
PAUSE = 0.05


def in_jax(portable: bytes, arrays: list[Any]) -> Callable[[], object]:
    """Executes in this process and waits, on jax's own CPU client."""
    device = jax.devices("cpu")[0]
    with mlir.make_ir_context() as context:
        module = stablehlo.deserialize_portable_artifact(context, portable)
        code = mlir.module_to_bytecode(module)
    loaded = device.client.compile_and_load(code, [device], _jax.CompileOptions())
    held = [jax.device_put(array.numpy(), device) for array in arrays]

    def run() -> object:
        out = loaded.execute_sharded(held).disassemble_into_single_device_arrays()
        _jax.batched_block_until_ready([o for per_device in out for o in per_device])
        return out

    return run


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    rows, tiny = [], None
    with WarmCompiler() as compiler:
        for name, example_of in EXAMPLES.items():
            example = example_of()
            program = program_of(example)
            arrays = input_arrays(program, example)
            device = OnDevice(compiler.compile(program.stablehlo, OPTIONS).neff, arrays)
            peer = in_jax(program.stablehlo, arrays)
            if name == "64x64 add":
                tiny = device, peer
                continue
            times = in_turn({"device": device.run, "jax": peer}, ROUNDS, pause=PAUSE)
            rows.append((name, ms(times["device"]), ms(times["jax"]), f"{ratio(times, 'device', 'jax'):.3f}", "1.05"))
    table(("graph", "daemon", "jax in-process", "ratio", "goal <="), rows)
    assert tiny is not None
    device, peer = tiny
    blocks = in_turn(
        {
            "round trip": lambda: repeat(device.run),
            "queued": lambda: queued(device),
            "jax": lambda: repeat(peer),
        },
        BLOCKS,
        pause=PAUSE,
    )
    each = {name: [seconds / TINY for seconds in found] for name, found in blocks.items()}
    print()
    table(
        (f"64x64 add, blocks of {TINY}", "median", "best", "goal <="),
        [
            ("round trip through the daemon", us(each["round trip"]), us([min(each["round trip"])]), "60 us"),
            ("amortised, queued asynchronously", us(each["queued"]), us([min(each["queued"])]), "25 us"),
            ("jax in-process, synchronous", us(each["jax"]), us([min(each["jax"])]), ""),
        ],
    )


def repeat(call: Callable[[], object]) -> None:
    for _ in range(TINY):
        call()


def queued(device: OnDevice) -> None:
    for _ in range(TINY):
        last = device.submit()
    device.core.wait(last)


if __name__ == "__main__":
    main()
