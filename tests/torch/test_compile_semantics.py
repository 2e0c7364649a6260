"""What a compiled function does besides computing: it overwrites, aliases, draws random numbers, keeps dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("compiling")]


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(function, backend="neuron", fullgraph=True, **options)


def on_device(*sizes: int) -> Any:
    count = torch.Size(sizes).numel()
    return torch.linspace(-1, 1, count).reshape(sizes).to("neuron")


def check(function: Callable[..., Any], *arguments: Any) -> None:
    """Results, and what becomes of the arguments, are those of eager mode."""
    copies = [argument.clone() for argument in arguments]
    found, wanted = compiled(function)(*arguments), function(*copies)
    for one, other in zip((*found, *arguments), (*wanted, *copies), strict=True):
        torch.testing.assert_close(one.cpu(), other.cpu())
        assert one.stride() == other.stride()


def overwrite(x: Any) -> Any:
    x.mul_(2)
    x[1:] += 1
    return (x.sum(),)


def test_arguments_are_overwritten_where_they_lie() -> None:
    x = on_device(4, 6)
    address = x.data_ptr()
    check(overwrite, x)
    assert x.data_ptr() == address


def test_a_view_that_is_not_contiguous_is_read_and_overwritten() -> None:
    x, y = on_device(4, 6), on_device(4, 6)
    compiled(overwrite)(x.t()[1:5])
    overwrite(y.t()[1:5])
    torch.testing.assert_close(x.cpu(), y.cpu())


def test_a_permuted_argument_is_read_as_it_lies(neuron: Any) -> None:
    x = on_device(6, 512, 4).permute(2, 0, 1)
    step = compiled(lambda x: (x * torch.arange(512, device=x.device)).sum((1, 2)))
    wanted = (x.cpu() * torch.arange(512)).sum((1, 2))
    torch.testing.assert_close(step(x).cpu(), wanted)
    neuron.synchronize()
    before = neuron.memory_stats()["allocated_bytes"]["allocated"]
    step(x)
    neuron.synchronize()
    assert neuron.memory_stats()["allocated_bytes"]["allocated"] - before < x.nbytes
    torch.testing.assert_close(step(x.clone(memory_format=torch.contiguous_format)).cpu(), wanted)


def test_arguments_that_share_memory_see_each_others_changes() -> None:
    def change(a: Any, b: Any) -> Any:
        a.add_(1)
        return b * 2

    x, y = on_device(8), on_device(8)
    torch.testing.assert_close(compiled(change)(x[:4], x[2:6]).cpu(), change(y[:4], y[2:6]).cpu())
    torch.testing.assert_close(x.cpu(), y.cpu())


def test_one_value_for_an_argument_and_a_result() -> None:
    def change(b: Any, x: Any) -> Any:
        b.copy_(x + 1)
        return b.clone(), b * 1

    check(change, on_device(3), on_device(3))


def test_a_cache_of_keys_and_values_is_filled_in_place() -> None:
    class Cached(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("keys", torch.zeros(2, 8, 4))

        def forward(self, x: Any, place: Any) -> Any:
            self.keys.index_copy_(1, place, x)
            return self.keys.sum(1)

    there, here = Cached().to("neuron"), Cached()
    address, step = there.keys.data_ptr(), compiled(there)
    for number in range(3):
        x, place = torch.full((2, 1, 4), float(number + 1)), torch.tensor([number])
        torch.testing.assert_close(step(x.to("neuron"), place.to("neuron")).cpu(), here(x, place))
    torch.testing.assert_close(there.keys.cpu(), here.keys)
    assert there.keys.data_ptr() == address


def test_results_that_are_arguments_or_views_of_them() -> None:
    x = on_device(4, 4)
    same, turned, flat, nothing, number, made = compiled(lambda x: (x, x.t(), x.view(16), None, 3, (x + 1).t()))(x)
    assert same is x
    assert (nothing, number) == (None, 3)
    assert turned.stride() == made.stride() == (1, 4)
    flat.zero_()
    assert not turned.cpu().any()


def test_results_that_are_views_of_one_new_tensor() -> None:
    def views(x: Any) -> Any:
        y = x * 2
        return y[0], y.t(), y

    row, turned, whole = compiled(views)(on_device(3, 4))
    whole.fill_(7)
    assert row.cpu().eq(7).all()
    assert turned.cpu().eq(7).all()


def test_what_backward_needs_of_the_arguments_is_not_copied(neuron: Any) -> None:
    layer = torch.nn.Linear(256, 256, bias=False).to("neuron")
    x = on_device(4, 256)
    step = compiled(layer)
    step(x).sum().backward()
    neuron.synchronize()
    before = neuron.memory_allocated()
    y = step(x)
    assert neuron.memory_allocated() - before < layer.weight.nbytes
    del y


def test_nothing_to_compute_and_nothing_in_the_tensors() -> None:
    assert compiled(lambda x: x.t())(on_device(2, 4)).shape == (4, 2)
    assert compiled(lambda x: (x * 2).sum(0))(on_device(0, 4)).tolist() == [0, 0, 0, 0]


def test_dropout_draws_what_eager_mode_draws(neuron: Any) -> None:
    x = torch.ones(32, 32, device="neuron")

    def drop(x: Any) -> Any:
        return torch.nn.functional.dropout(torch.nn.functional.dropout(x, 0.3), 0.2)

    step = compiled(drop)
    neuron.manual_seed(5)
    found, more, state = step(x), step(x), neuron.get_rng_state()
    neuron.manual_seed(5)
    torch.testing.assert_close(found.cpu(), drop(x).cpu())
    torch.testing.assert_close(more.cpu(), drop(x).cpu())
    assert torch.equal(neuron.get_rng_state(), state)
    assert not torch.equal(found.cpu(), more.cpu())


@pytest.mark.parametrize("recompute", [False, True], ids=["saved", "checkpointed"])
def test_backward_drops_what_forward_dropped(recompute: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    def body(x: Any) -> Any:
        return torch.nn.functional.dropout(torch.nn.functional.dropout(x, 0.5) * 2, 0.5)

    def step(x: Any) -> Any:
        return checkpoint(body, x, use_reentrant=False) if recompute else body(x)

    x = torch.ones(32, 32, device="neuron", requires_grad=True)
    y = compiled(step)(x)
    y.sum().backward()
    torch.testing.assert_close(x.grad.cpu(), y.detach().cpu())
    assert 0.1 < float((y != 0).float().mean()) < 0.4


def test_random_numbers_of_every_kind(neuron: Any) -> None:
    def draw(x: Any) -> Any:
        like = torch.empty_like(x)
        return (
            torch.rand(64, 64, device=x.device),
            torch.randn_like(x),
            torch.randint(-2, 3, (64, 64), device=x.device),
            torch.bernoulli(torch.full_like(x, 0.25)),
            like.clone().uniform_(2, 3),
            like.clone().normal_(5, 0.1),
            like.clone().exponential_(2),
        )

    step, x = compiled(draw), torch.zeros(64, 64, device="neuron")
    neuron.manual_seed(3)
    first = [value.cpu() for value in step(x)]
    neuron.manual_seed(3)
    assert all(torch.equal(one, other.cpu()) for one, other in zip(first, step(x), strict=True))
    means = [float(value.float().mean()) for value in first]
    assert means == pytest.approx([0.5, 0, 0, 0.25, 2.5, 5, 0.5], abs=0.1)
    assert set(first[2].flatten().tolist()) == {-2, -1, 0, 1, 2}
    assert 2 <= float(first[4].min()) <= float(first[4].max()) < 3


def test_autocast_inside() -> None:
    layer, x = torch.nn.Linear(8, 8).to("neuron"), on_device(4, 8)

    def step(x: Any) -> Any:
        with torch.autocast("neuron", dtype=torch.bfloat16):
            return layer(x)

    y = compiled(step)(x)
    y.float().sum().backward()
    assert (y.dtype, layer.weight.grad.dtype) == (torch.bfloat16, torch.float32)
    torch.testing.assert_close(y.detach().cpu(), step(x).detach().cpu())


def test_64_bit_numbers_are_narrowed_as_in_eager_mode() -> None:
    x = torch.tensor([1.0, 1 + 1e-12], dtype=torch.float64).to("neuron")
    y = compiled(lambda x: x * 3 + torch.ones(2, dtype=torch.float64, device=x.device))(x)
    assert y.dtype is torch.float64
    assert y.tolist() == [4.0, 4.0]
    number = torch.tensor([1, 2**40 + 3]).to("neuron")
    assert compiled(lambda x: x + 1)(number).tolist() == (number + 1).tolist() == [2, 4]


def test_graph_breaks_make_two_graphs(neuron: Any) -> None:
    def step(x: Any) -> Any:
        y = x * 2
        torch._dynamo.graph_break()
        return y + 1

    x = on_device(3)
    torch.testing.assert_close(torch.compile(step, backend="neuron")(x).cpu(), x.cpu() * 2 + 1)
    assert len(neuron.get_dynamo_metrics()) == 2


def test_graphs_and_eager_operators_keep_their_order() -> None:
    x = on_device(64, 64)
    step = compiled(lambda x: x @ x * 0.01 + 1)
    expected = x.cpu()
    for _ in range(20):
        x = step(x) - 1  # an eager operator between two graphs, nothing waited for
        expected = expected @ expected * 0.01
    torch.testing.assert_close(x.cpu(), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("norm_first", [False, True])
def test_attention_layers_use_their_fused_operator_in_evaluation(norm_first: bool) -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, 0.0, "gelu", batch_first=True, norm_first=norm_first).eval()
    x, padding = torch.randn(2, 5, 16), torch.arange(5).expand(2, 5) > 3
    with torch.no_grad():
        wanted = layer(x, src_key_padding_mask=padding)
        there = compiled(layer.to("neuron"))
        found = there(x.to("neuron"), src_key_padding_mask=padding.to("neuron"))
    torch.testing.assert_close(found.cpu(), wanted)


def test_two_arguments_change_places() -> None:
    def swap(a: Any, b: Any) -> Any:
        kept = a.clone()
        a.copy_(b)
        b.copy_(kept)
        return (kept,)

    check(swap, on_device(4), on_device(4) * 2)
