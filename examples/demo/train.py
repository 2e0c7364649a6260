"""What one instance of the demo does: trains the GPT and the CNN, embeds with MiniLM, and tells, a JSON line an event.

    python examples/demo/train.py gpt digits minilm        # the models, in this order

The runtime and the cache are those that the environment names. Ends when its standard input does.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from line import stand_by, tell

EXAMPLES = Path(__file__).parents[1]
GPT_STEPS = 40


def example(folder: str, name: str) -> ModuleType:
    """The module examples/folder/name.py, whatever other examples call theirs."""
    spec = importlib.util.spec_from_file_location(f"{folder}_{name}", EXAMPLES / folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    sys.path.insert(0, str(EXAMPLES / folder))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path.pop(0)
    return module


def gpt(device: str) -> Iterator[Any]:
    return example("gpt", "train").train(device, GPT_STEPS)


def digits(device: str) -> Iterator[Any]:
    module = example("digits", "train")
    return module.train(module.reader(device), device, epochs=1)


def minilm(device: str) -> Iterator[Any]:
    """How alike the pairs of sentences are, three times: the first one compiles."""
    module = example("minilm", "embed")
    model = module.embedder().to(device)
    for _ in range(3):
        found = module.embed(model, device)
        yield (found[::2] * found[1::2]).sum(1)


MODELS = {"gpt": gpt, "digits": digits, "minilm": minilm}


def run(steps: Iterator[Any]) -> tuple[list[list[float]], float, float]:
    """The numbers of each step, when the first was there (monotonic clock), and seconds a step after that."""
    made = [next(steps)]
    made[0].tolist()
    first = time.monotonic()
    made += steps
    values = [[number] if isinstance(number := step.tolist(), float) else number for step in made]
    return values, first, (time.monotonic() - first) / max(1, len(made) - 1)


def main() -> None:
    stand_by()
    import torch

    import torch_neuronx
    from torch_neuronx.eager.models import builder

    for name in sys.argv[1:]:
        before = builder().cache.stats.to_json()
        torch_neuronx.clear_op_tracking()
        values, first, pace = run(MODELS[name]("neuron"))
        torch.neuron.synchronize()
        after = builder().cache.stats.to_json()
        expected, _, _ = run(MODELS[name]("cpu"))
        tell(
            "model",
            model=name,
            values=values,
            expected=expected,
            first_at=first,
            pace=pace,
            fallbacks=sorted(torch_neuronx.get_fallback_ops()),
            counts={key: after[key] - before[key] for key in after},
        )
    tell("done")


if __name__ == "__main__":
    main()
