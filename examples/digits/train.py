"""Trains a small convolutional network to read scikit-learn's handwritten digits.

    python examples/digits/train.py --device neuron --epochs 3

Plain PyTorch: the device is named once, in `.to(device)`. The 1,797 pictures of 8 x 8 pixels come with scikit-learn;
they are read from its data file, so that nothing else of it has to be installed.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import time
from collections.abc import Iterator
from pathlib import Path

import numpy
import torch
from torch import nn
from torch.nn import functional

BATCH = 50
FOR_TESTING = 297


class Reader(nn.Module):
    """Pictures (batch, 1, 8, 8) to logits of the ten digits, (batch, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 4 * 4, 10),
        )

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.layers(pictures)


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures float32 (1797, 1, 8, 8) from 0 to 1, and what they show, int64 (1797,)."""
    package = importlib.util.find_spec("sklearn")
    if package is None or package.submodule_search_locations is None:
        raise SystemExit("the digits come with scikit-learn; type: pip install scikit-learn")
    file = Path(package.submodule_search_locations[0], "datasets", "data", "digits.csv.gz")
    with gzip.open(file, "rt") as lines:
        table = torch.from_numpy(numpy.loadtxt(lines, delimiter=",", dtype=numpy.float32))
    return table[:, :64].reshape(-1, 1, 8, 8) / 16, table[:, 64].long()


def reader(device: str, seed: int = 0) -> Reader:
    """One that has learned nothing; the same on every device."""
    torch.manual_seed(seed)
    return Reader().to(device)


def train(
    model: nn.Module, device: str, epochs: int, *, seed: int = 0, most: int | None = None
) -> Iterator[torch.Tensor]:
    """The loss of each step, as a tensor on the device; at most `most` steps an epoch."""
    chance = torch.Generator().manual_seed(seed)
    pictures, shown = (tensor[:-FOR_TESTING] for tensor in digits())
    optimizer = torch.optim.SGD(model.train().parameters(), lr=0.05, momentum=0.9)
    for _ in range(epochs):
        for chosen in torch.randperm(len(shown), generator=chance).split(BATCH)[:most]:
            loss = functional.cross_entropy(model(pictures[chosen].to(device)), shown[chosen].to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield loss.detach()


def accuracy(model: nn.Module, device: str) -> float:
    """The share of the digits kept for testing that it reads right."""
    pictures, shown = (tensor[-FOR_TESTING:] for tensor in digits())
    with torch.no_grad():
        read = model.eval()(pictures.to(device)).argmax(1)
    return (read.cpu() == shown).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains a convolutional network on handwritten digits.")
    parser.add_argument("--device", default="neuron")
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    began = time.perf_counter()
    steps = (1797 - FOR_TESTING) // BATCH
    model = reader(options.device)
    for step, loss in enumerate(train(model, options.device, options.epochs), start=1):
        if step == 1 or step % steps == 0:
            print(f"step {step:4}   loss {loss.item():.4f}   {time.perf_counter() - began:7.1f} s", flush=True)
    print(f"reads {accuracy(model, options.device):.1%} of {FOR_TESTING} digits that it has not seen")


if __name__ == "__main__":
    main()
