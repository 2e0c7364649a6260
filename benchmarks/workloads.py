"""The graphs that are measured: a transformer block, MiniLM, and an addition that costs nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from neuron_runtime.compiler.options import CompileOptions
from torch_neuronx import Example, Program

OPTIONS = CompileOptions()


class Block(torch.nn.Module):
    """One pre-norm transformer block over (batch, seq, width) float32."""

    def __init__(self, width: int = 512, heads: int = 8) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, seq, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, seq, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, seq, width))
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x))))


class Add(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + b


def block() -> Example:
    torch.manual_seed(0)
    return Example(Block().eval(), (torch.randn(4, 128, 512),))


def minilm() -> Example:
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "minilm"))
    from model import example

    return Example(*example(8, 32))


def add() -> Example:
    return Example(Add(), (torch.randn(64, 64), torch.randn(64, 64)))


EXAMPLES = {"transformer block": block, "MiniLM 8x32": minilm, "64x64 add": add}


def program_of(example: Example) -> Program:
    return Program.build(example.module, example.args, example.kwargs)


def input_arrays(program: Program, example: Example) -> list[torch.Tensor]:
    """Every input of the graph, weights included, in order."""
    given = program.weights() | program.arguments(*example.args, **example.kwargs)
    return [given[number] for number in range(len(program.inputs))]
