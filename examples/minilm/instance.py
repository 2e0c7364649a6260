"""One simulated instance of the demo: embeds sentences at two shapes and tells what happened, a JSON line an event.

    python examples/minilm/instance.py --name a --shared DIR --local DIR

It says `ready` when its graphs are lowered, and goes on when it gets a line on stdin.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from typing import Any

SHAPES = ((8, 32), (8, 64))


def tell(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    for option in ("--name", "--shared", "--local"):
        parser.add_argument(option, required=True)
    options = parser.parse_args()

    logging.basicConfig(format="   %(message)s", level=logging.WARNING, stream=sys.stderr)

    import torch
    from model import example

    from cache_server import NeffCache
    from neuron_runtime.client import current_runtime
    from neuron_runtime.compiler.warm import WarmCompiler
    from neuron_runtime.protocol.paths import runtime_paths
    from neuron_runtime.tools.snapshot import take_snapshot
    from torch_neuronx import Example, Program
    from torch_neuronx.build import NeffBuilder, compile_options
    from torch_neuronx.loaded import DeviceWeights, LoadedProgram
    from torch_neuronx.reference import largest_difference, reference_result

    session = current_runtime()
    weights = DeviceWeights(session)
    graphs = []
    for batch, seq in SHAPES:
        module, arguments = example(batch, seq)
        graphs.append((f"minilm-{batch}x{seq}", Program.build(module, arguments), Example(module, arguments)))
    cache = NeffCache.open(
        options.shared,
        local_dir=options.local,
        progress=lambda w: tell("waiting", graph=w.label, owner=w.owner, phase=w.phase),
        on_phase=lambda phase: tell("phase", phase=phase.value),
    )
    with WarmCompiler() as compiler:
        # A rank that trains has its compiler warm; the compile times that follow are the compiler's own.
        compiler.start()
        builder = NeffBuilder(cache, compiler)
        tell("ready", cores=session.visible_cores, executor=session.executor_pid)
        sys.stdin.readline()
        for label, program, call in graphs:
            tell("graph", graph=label)
            result = builder.build(program, compile_options(session.target, session.lnc), label=label)
            loaded = LoadedProgram(program, result.neff, weights, name=label)
            embeddings = loaded(*call.args)
            start = time.perf_counter()
            for _ in range(5):
                loaded(*call.args)
            tell(
                "result",
                graph=label,
                outcome=result.outcome.value,
                key=result.key,
                compile_seconds=result.compile_seconds,
                waited_seconds=result.waited_seconds,
                saved_seconds=result.saved_seconds,
                took_over=result.took_over,
                run_seconds=(time.perf_counter() - start) / 5,
                max_difference=largest_difference(embeddings, reference_result(call)),
                checksum=float(embeddings.to(torch.float64).abs().sum()),
                similarity=[float(embeddings[i] @ embeddings[i + 1]) for i in range(0, len(embeddings), 2)],
            )
    snapshot = take_snapshot(runtime_paths())
    tell("snapshot", snapshot=snapshot, statistics=cache.stats.to_json())


if __name__ == "__main__":
    main()
