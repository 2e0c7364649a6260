"""Trains the examples' models compiled, as a program: prints losses, and what the cache had to do, as JSON.

python tests/torch/compiled_examples.py MODEL...
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.nn import functional

EXAMPLES = Path(__file__).parents[2] / "examples"
STEPS = 5


def example(folder: str, name: str = "train") -> ModuleType:
    path = EXAMPLES / folder / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{folder}_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def losses(kind: str, device: str, wrap: Callable[[Any], Any] = lambda module: module) -> list[float]:
    """Of `gpt` or `digits`, small, from weights that are the same on each device."""
    torch.manual_seed(0)
    if kind == "gpt":
        gpt = example("gpt")
        model = gpt.GPT(layers=1, heads=2, width=16, context=16).to(device)
        stream = gpt.batches(gpt.corpus(), 2, 16, 0)
        pairs = [next(stream) for _ in range(STEPS)]
    else:
        digits = example("digits")
        model = digits.Reader().to(device)
        pictures, shown = digits.digits()
        pairs = list(zip(pictures.split(20), shown.split(20), strict=True))[:STEPS]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    called = wrap(model.train())
    found = []
    for given, wanted in pairs:
        loss = functional.cross_entropy(called(given.to(device)).flatten(0, -2), wanted.to(device).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return [float(loss) for loss in found]


def main() -> None:
    def wrap(function: Any) -> Any:
        return torch.compile(function, backend="neuron", fullgraph=True)

    found = {kind: losses(kind, "neuron", wrap) for kind in sys.argv[1:]}
    from torch_neuronx.eager.models import builder

    print(json.dumps({"losses": found, "compiles": builder().cache.stats.compiles}))


if __name__ == "__main__":
    main()
