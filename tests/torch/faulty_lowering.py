"""The process that lowers, with three operators at which it crashes, hangs, or waits to be killed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from neuron_runtime.compiler.serving import Serve, serve
from torch_neuronx.worker import process


def prepare() -> Serve:
    answer = process.prepare()

    def faulty(request: Any, payload: bytes) -> Any:
        if request["name"] == "aten::sin":
            crash_torch_mlir()
        elif request["name"] == "aten::cos":
            Path(os.environ["LOWERING_HANGS"]).write_text("")
            while True:
                pass
        return answer(request, payload)

    return faulty


def crash_torch_mlir() -> None:
    """Reduces a tensor without dimensions, which eager mode's decompositions prevent."""
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    from torch_neuronx.lowering import lower_graph

    graph = make_fx(lambda x: torch.ops.aten.amax.default(x, [-1], True), tracing_mode="fake")(torch.ones(()))
    lower_graph(graph)


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1:], prepare, name="the lowering process"))
