"""Embeds sentences with all-MiniLM-L6-v2 and says which are alike.

    python examples/minilm/embed.py --device neuron

Plain PyTorch and Transformers: the device is named once, in `.to(device)`. The CPU's result is computed beside it.
"""

from __future__ import annotations

import argparse
import time

import torch
from model import SentenceEmbedder, embedder, model_folder
from sentences import SENTENCES, tokenize

LENGTH = 32


def embed(model: SentenceEmbedder, device: str, length: int = LENGTH) -> torch.Tensor:
    """Unit vectors, float32 (sentences, 384), on the CPU."""
    tokens, mask = tokenize(SENTENCES, length, model_folder())
    with torch.no_grad():
        return model(tokens.to(device), mask.to(device)).cpu()


def main() -> None:
    parser = argparse.ArgumentParser(description="Embeds sentences with all-MiniLM-L6-v2.")
    parser.add_argument("--device", default="neuron")
    options = parser.parse_args()
    expected = embed(embedder().to("cpu"), "cpu")
    model = embedder().to(options.device)
    for call in ("first", "second"):
        began = time.perf_counter()
        found = embed(model, options.device)
        print(f"{call} call: {(time.perf_counter() - began) * 1e3:.0f} ms")
    for one, other, likeness in zip(SENTENCES[::2], SENTENCES[1::2], (found[::2] * found[1::2]).sum(1), strict=True):
        print(f"{likeness:5.2f}  {one}\n       {other}")
    print(f"largest difference to the CPU: {(found - expected).abs().max():.1e}")


if __name__ == "__main__":
    main()
