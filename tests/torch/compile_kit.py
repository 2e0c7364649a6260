"""Small models, and the same training on both devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.mix(self.before(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.project(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.feed(self.between(x))


class Gpt(nn.Module):
    """Two layers; the weights of the embedding and the head are one tensor."""

    def __init__(self, words: int = 32, width: int = 16, length: int = 8) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(Block(width, 2), Block(width, 2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.tie()

    def tie(self) -> None:
        self.head.weight = self.words.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        places = torch.arange(words.shape[1], device=words.device)
        return self.head(self.norm(self.blocks(self.words(words) + self.places(places)))).flatten(0, 1)


class Cnn(nn.Module):
    """Batch norm in training, so its statistics are overwritten."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.second, self.last = nn.Conv2d(8, 8, 3, stride=2), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(torch.relu(self.norm(self.first(x))), 2)
        return self.last(torch.relu(self.second(x)).mean((2, 3)))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 5))


def example(kind: str) -> tuple[Callable[[], nn.Module], torch.Tensor, torch.Tensor]:
    """How to make the model, its input and the labels, on the CPU."""
    random = torch.Generator().manual_seed(1)
    labels = torch.randint(0, 5, (6,), generator=random)
    if kind == "gpt":
        return Gpt, torch.randint(0, 32, (4, 8), generator=random), torch.randint(0, 32, (32,), generator=random)
    if kind == "cnn":
        return Cnn, torch.randn(6, 3, 12, 12, generator=random), labels
    return mlp, torch.randn(6, 8, generator=random), labels


@dataclass
class Trained:
    losses: list[float]
    gradients: dict[str, torch.Tensor]
    state: dict[str, torch.Tensor]


def train(kind: str, device: str, wrap: Callable[[Any], Any] = lambda function: function, steps: int = 5) -> Trained:
    """`wrap` is given the model, and the optimizer's step. The gradients are those of the first step."""
    make, inputs, labels = example(kind)
    torch.manual_seed(0)
    model = make().to(device)
    if isinstance(model, Gpt):
        model.tie()  # moving to the device makes two parameters of it
    inputs, labels = inputs.to(device), labels.to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    called, step = wrap(model), wrap(optimizer.step)
    trained = Trained([], {}, {})
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(called(inputs), labels)
        loss.backward()
        if not trained.gradients:
            trained.gradients = {name: value.grad.cpu().clone() for name, value in model.named_parameters()}
        step()
        trained.losses.append(loss.detach())
    trained.losses = [float(loss) for loss in trained.losses]
    trained.state = {name: value.cpu() for name, value in model.state_dict().items()}
    return trained
