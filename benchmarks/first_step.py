"""From the start of a process to the end of the first training step of a small GPT: nothing cached, this host, another.

Beside it: the same program on the CPU, which is what importing PyTorch and its optimizer takes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.report import table

PROGRAM = """
import sys
import torch

class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.between = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)
        )

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.before(x)).chunk(3, -1)
        q, k, v = [p.view(batch, length, self.heads, -1).transpose(1, 2) for p in parts]
        seen = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.between(x))

class Gpt(torch.nn.Module):
    def __init__(self, words=256, width=64, length=32):
        super().__init__()
        self.words, self.places = torch.nn.Embedding(words, width), torch.nn.Embedding(length, width)
        self.blocks = torch.nn.Sequential(Block(width, 4), Block(width, 4))
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        places = self.places(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.blocks(self.words(tokens) + places)))

torch.manual_seed(0)
device = sys.argv[1]
model = Gpt().to(device)
step = torch.optim.AdamW(model.parameters(), lr=1e-3)
tokens = torch.randint(0, 256, (4, 32)).to(device)
loss = torch.nn.functional.cross_entropy(model(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
loss.backward()
step.step()
loss.item()
compiled, plans = 0, 0
if device == "neuron":
    from torch_neuronx import _C
    from torch_neuronx.eager.models import builder
    compiled, plans = builder().cache.stats.compiles, _C.plan_count()
print(compiled, plans)
"""


def first_step(device: str, place: Path, host: str) -> tuple[float, str, str]:
    """Seconds; what was lowered or compiled; plans."""
    environ = {
        **os.environ,
        "NEURON_ENV_CACHE_URL": str(place / "shared"),
        "NEURON_ENV_CACHE_LOCAL_DIR": str(place / host),
    }
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, device], env=environ, check=True, stdout=subprocess.PIPE, text=True
    )
    compiled, plans = done.stdout.split()
    return time.perf_counter() - begun, compiled, plans


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="nbench-") as made:
        place = Path(made)
        runs = {
            "neuron, nothing cached": ("neuron", "one"),
            "neuron, this host again": ("neuron", "one"),
            "neuron, another host, same store": ("neuron", "two"),
            "cpu": ("cpu", "one"),
        }
        rows = []
        for name, (device, host) in runs.items():
            seconds, compiled, plans = first_step(device, place, host)
            rows.append((name, f"{seconds:.1f} s", compiled, plans))
    table(("first step of a 2-layer GPT", "process", "lowered and compiled", "plans"), rows)


if __name__ == "__main__":
    main()
