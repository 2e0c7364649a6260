"""Sentences to embed, and their tokens at a fixed shape."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

# Pairs that mean nearly the same stand side by side, so that a reader can judge the embeddings.
SENTENCES = (
    "The graph was compiled once and every other host loaded the result.",
    "One machine built the program; the rest fetched it from the shared cache.",
    "A heron stood motionless in the shallow water, waiting for a fish.",
    "The bird watched the pond without moving, hoping to catch its meal.",
    "Knead the dough for ten minutes, then let it rise until it has doubled.",
    "Work the bread mixture by hand and leave it somewhere warm to grow.",
    "The train to the coast was delayed by snow on the line.",
    "Because of heavy snowfall, the seaside service left late.",
)


def tokenize(texts: Sequence[str], seq: int, folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and mask, each int64 (len(texts), seq): longer texts are cut, shorter ones padded."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(seq)
    tokenizer.enable_padding(length=seq)
    encoded = tokenizer.encode_batch(list(texts))
    ids = torch.tensor([entry.ids for entry in encoded], dtype=torch.int64)
    mask = torch.tensor([entry.attention_mask for entry in encoded], dtype=torch.int64)
    return ids, mask
