"""Operators one by one on XLA against CPU PyTorch."""

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch")
F = torch.nn.functional

X = torch.linspace(-2, 2, 24).reshape(4, 6).roll(5)
IDS = torch.tensor([0, 3, 1])
INTS = torch.arange(-5, 5)

CASES = {
    "activations": (
        lambda x: (F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.softplus(x), F.elu(x), F.hardswish(x)),
        X,
    ),
    "softmax": (lambda x: (F.softmax(x, -1), F.log_softmax(x, 0), x.logsumexp(-1)), X),
    "normalisation": (
        lambda x: (F.layer_norm(x, (6,)), F.rms_norm(x, (6,)), F.normalize(x, dim=-1), F.group_norm(x[None], 2)),
        X,
    ),
    "embedding": (lambda table, ids: (F.embedding(ids, table), table[ids], table.index_select(0, ids)), X, IDS),
    "cumulative": (lambda x: (x.cumsum(0), x.cumsum(-1), x.logcumsumexp(1)), X),
    "topk": (lambda x: (*torch.topk(x, 2), *torch.topk(x, 3, largest=False)), X),
    "sort": (lambda x: (*torch.sort(x), *torch.sort(x, 0, descending=True), torch.argsort(x)), X),
    "reductions": (lambda x: (x.sum(), x.mean(0), x.amax(1), x.var(0), x.std(), x.prod(1), x.argmax(1), x.norm()), X),
    "products": (lambda x: (x @ x.T, torch.einsum("ij,kj->ik", x, x), torch.outer(x[0], x[1]), x[0] @ x[1]), X),
    "affine": (lambda x: (torch.addmm(x, x @ x.T, x, beta=0.5, alpha=2), torch.addmv(x[:, 0], x, x[0])), X),
    "shapes": (
        lambda x: (x.reshape(3, 8), x.T.flatten(), x.unsqueeze(1).expand(4, 2, 6), *x.chunk(2, 1), torch.stack([x, x])),
        X,
    ),
    "moves": (lambda x: (x.roll(2, -1), x.flip(0), x.repeat(2, 1), x.repeat_interleave(2, 0), F.pad(x, (1, 2))), X),
    "masks": (lambda x: (x.tril(), x.triu(1), x.masked_fill(x > 0, -9.0), torch.where(x > 0, x, 0)), X),
    "writes": (
        lambda x, ids: (
            x.index_put((ids,), torch.zeros(3, 6)),
            x.index_add(0, ids, torch.ones(3, 6)),
            x.scatter(1, ids[None], 5.0),
            x.select_scatter(torch.ones(6), 0, -1),
            x.slice_scatter(torch.zeros(2, 6), 0, 1, 3),
        ),
        X,
        IDS,
    ),
    "convolutions": (
        lambda x: (
            F.conv1d(x[None], torch.ones(2, 4, 3)),
            F.conv2d(x[None, None], torch.ones(1, 1, 3, 3), padding=1, stride=2),
            F.conv_transpose2d(x[None, None], torch.ones(1, 2, 3, 3), stride=2),
        ),
        X,
    ),
    "pooling": (
        lambda x: (F.max_pool2d(x[None, None], 2), F.avg_pool2d(x[None, None], 2), F.adaptive_avg_pool1d(x, 2)),
        X,
    ),
    "resizing": (
        lambda x: tuple(F.interpolate(x[None, None], scale_factor=2, mode=m) for m in ("nearest", "bilinear")),
        X,
    ),
    "attention": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), X.reshape(1, 2, 4, 3)),
    "integers": (lambda i: (i + 1, i * i, i // 3, i % 3, i.abs(), i.sum(), i.float() / 2, i > 2.5, i**2), INTS),
    "booleans": (lambda b: (~b, b & b.flip(0), b.any(), b.all(), b.sum(), b.float(), b.cumsum(0)), INTS > 1),
    "scalars": (lambda s: (s + 1, s.exp(), s.reshape(1), torch.full((), 2.0) * s), torch.tensor(0.5)),
    "empties": (lambda x: (x.sum(), torch.cat([x, x]), x.reshape(3, 0)), torch.zeros(0, 3)),
    "doubles": (lambda x: (x @ x.T, x.exp()), X.double()),
    "halves": (lambda x: (x * 2, x + 0.5), X.half()),
    "bytes": (lambda x: (x + 250, x // 2, x.float()), torch.arange(10, dtype=torch.uint8)),
    "casts": (lambda x: (x.long(), x.int(), x.bool(), x.to(torch.bfloat16), x.double()), X),
    "infinities": (lambda x: (x / 0, x.isnan(), x.isinf(), torch.nan_to_num(x / 0), F.softmax(x / 0, -1)), X),
    "argument": (lambda x: (x, x), X),
    "strides": (lambda x: (x.as_strided((2, 3), (1, 2)), x.t().contiguous().view(-1), x[::2, 1::3]), X),
    "dropout": (lambda x: F.dropout(x, 0.5, training=False), X),
}


class Call(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


@pytest.mark.parametrize("name", CASES)
def test_operators(load, name):
    function, *args = CASES[name]
    expected = function(*args)
    result = load(Call(function), *args)(*args)
    # 3 units in the last place of float32 at the magnitude of these values; integers and booleans exactly.
    torch.testing.assert_close(result, expected, rtol=2e-6, atol=1e-6, equal_nan=True)
