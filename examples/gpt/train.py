"""Trains a small GPT on the source code of Python's standard library, byte by byte.

    python examples/gpt/train.py --device neuron --steps 100

Plain PyTorch: the device is named once, in `.to(device)`. Weights and batches are drawn on the CPU from one seed, so
the losses on two devices can be laid side by side.
"""

from __future__ import annotations

import argparse
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

SYMBOLS = 256  # bytes
CORPUS_BYTES = 2_000_000


class Block(nn.Module):
    """Attention over the past, then a feed-forward network; (batch, time, width) to the same."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_network = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value, self.attended = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.query_key_value(self.before_attention(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.attended(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.network(self.before_network(x))


class GPT(nn.Module):
    """Bytes (batch, time) int64 to logits of the byte that follows each, (batch, time, 256) float32."""

    def __init__(self, layers: int = 2, heads: int = 4, width: int = 64, context: int = 64) -> None:
        super().__init__()
        self.symbols = nn.Embedding(SYMBOLS, width)
        self.places = nn.Parameter(0.02 * torch.randn(context, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, SYMBOLS, bias=False)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.blocks(self.symbols(text) + self.places)))


def corpus() -> torch.Tensor:
    """The first two million bytes of the standard library's modules, in order of their names: uint8."""
    text = bytearray()
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text += path.read_bytes()
        if len(text) >= CORPUS_BYTES:
            break
    return torch.frombuffer(text, dtype=torch.uint8)[:CORPUS_BYTES]


def batches(text: torch.Tensor, batch: int, context: int, seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Random passages and what follows each of their bytes, both int64 (batch, context), without end."""
    chance = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(text) - context, (batch,), generator=chance)
        passages = torch.stack([text[start : start + context + 1] for start in starts]).long()
        yield passages[:, :-1], passages[:, 1:]


def train(
    device: str,
    steps: int,
    *,
    layers: int = 2,
    batch: int = 8,
    context: int = 64,
    seed: int = 0,
    backend: str | None = None,
) -> Iterator[torch.Tensor]:
    """The loss of each step, as a tensor on the device: reading it is what waits for the step.

    With a `backend` of torch.compile the model is compiled by it, as one graph.
    """
    torch.manual_seed(seed)
    model = GPT(layers=layers, context=context).to(device)
    if backend is not None:
        model.compile(backend=backend, fullgraph=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=20)
    for (text, following), _ in zip(batches(corpus(), batch, context, seed), range(steps), strict=False):
        logits = model(text.to(device))
        loss = functional.cross_entropy(logits.flatten(0, 1), following.to(device).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        warm_up.step()
        yield loss.detach()


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains a small GPT on the standard library's sources.")
    parser.add_argument("--device", default="neuron")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--backend", help="compile the model: neuron, or inductor on the CPU")
    parser.add_argument("--every", type=int, default=10, help="print the loss of every so many steps")
    options = parser.parse_args()
    began = time.perf_counter()
    losses = train(options.device, options.steps, layers=options.layers, backend=options.backend)
    for step, loss in enumerate(losses, start=1):
        if step == 1 or step % options.every == 0 or step == options.steps:
            print(f"step {step:4}   loss {loss.item():.4f}   {time.perf_counter() - began:7.1f} s", flush=True)


if __name__ == "__main__":
    main()
