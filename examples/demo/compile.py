"""An instance that captures MiniLM whole, as one graph, and compiles it through the cache; tells as train.py does.

It says `ready` when the graph is lowered, and goes on when the file named on the command line is there.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from line import stand_by, tell

GRAPH = "minilm-8x32"


def main() -> None:
    go = Path(sys.argv[1])
    stand_by()
    sys.path.insert(0, str(Path(__file__).parents[1] / "minilm"))
    from model import example

    from cache_server import NeffCache
    from neuron_runtime.client import current_runtime
    from neuron_runtime.compiler.warm import WarmCompiler
    from torch_neuronx import Example, Program
    from torch_neuronx.build import NeffBuilder, compile_options
    from torch_neuronx.loaded import DeviceWeights, LoadedProgram
    from torch_neuronx.reference import largest_difference, reference_result

    session = current_runtime()
    module, arguments = example(8, 32)
    program = Program.build(module, arguments)

    def waiting(found: Any) -> None:
        tell("waiting", owner=found.owner)

    cache = NeffCache.open(progress=waiting, on_phase=lambda phase: tell("phase", phase=phase.value))
    with WarmCompiler() as compiler:
        compiler.start()
        tell("ready")
        while not go.exists():
            time.sleep(0.01)
        options = compile_options(session.target, session.lnc)
        result = NeffBuilder(cache, compiler).build(program, options, label=GRAPH)
        loaded = LoadedProgram(program, result.neff, DeviceWeights(session), name=GRAPH)
        difference = largest_difference(loaded(*arguments), reference_result(Example(module, arguments)))
    tell("graph", took_over=result.took_over, compile_seconds=result.compile_seconds, difference=difference)
    tell("done")


if __name__ == "__main__":
    main()
