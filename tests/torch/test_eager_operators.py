"""Operators on the device against the same on the CPU: dtypes, layouts, numbers, aliasing, and how many NEFFs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("neuron")]


def same(function: Callable[..., Any], *given: Any, rtol: float = 1e-5, atol: float = 1e-5) -> Any:
    """The function's result on the device equals the CPU's in values, dtypes, shapes and strides."""
    wanted = function(*(t.clone() if isinstance(t, torch.Tensor) else t for t in given))
    found = function(*(t.to("neuron") if isinstance(t, torch.Tensor) else t for t in given))
    for one, other in zip(*(r if isinstance(r, tuple) else (r,) for r in (found, wanted)), strict=True):
        assert one.device.type == "neuron"
        assert (one.dtype, one.shape, one.stride()) == (other.dtype, other.shape, other.stride())
        torch.testing.assert_close(one.cpu(), other, rtol=rtol, atol=atol)
    return found


def values(*shape: int, dtype: Any = torch.float32) -> Any:
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * 37 % 101).reshape(shape).to(torch.float32) / 50 - 1).to(dtype)


def test_a_sum_of_two_tensors() -> None:
    same(torch.add, values(64, 64), values(64, 64))


def test_operands_that_lie_transposed_or_sliced_or_expanded() -> None:
    same(lambda a, b: a @ b.t(), values(4, 8), values(5, 8))
    same(lambda a, b: a @ b.t(), values(4, 4), values(4, 4))
    same(lambda a: a.permute(2, 0, 1) * 2, values(3, 3, 3))
    same(lambda a, b: a[:, 1:5] + b[1:5], values(4, 8), values(6))
    same(lambda a, b: a.t() + b.t(), values(3, 4), values(3, 4))
    same(lambda a, b: a.expand(3, 4) * b, values(1, 4), values(3, 4))


def test_in_place_operators_write_through_views() -> None:
    def change(a: Any, b: Any) -> Any:
        a[1:3, ::2].mul_(b[:, :2]).add_(1)
        a.t().sub_(a.t())[0].add_(2)
        return a

    same(change, values(4, 4), values(2, 4))


def test_out_arguments_get_the_result_and_its_size() -> None:
    def add(a: Any, b: Any) -> Any:
        out = torch.empty(0, device=a.device)
        returned = torch.add(a, b, out=out)
        assert returned is out
        return out

    same(add, values(3, 4), values(3, 4))


def test_an_operand_that_is_also_the_result() -> None:
    same(lambda a: a.add_(a), values(5))
    same(lambda a: torch.mul(a, a, out=a), values(5))


def test_dtypes_are_promoted_as_on_the_cpu() -> None:
    ints = torch.arange(6)
    same(lambda a: a + 2.5, ints)
    same(lambda a: a / 2, ints)
    same(lambda a: a * 3, ints.to(torch.int16))
    same(lambda a: a * 0.5, values(6, dtype=torch.bfloat16), rtol=2e-2)
    same(lambda a, b: a + b, values(6), ints)
    same(lambda a: a > 0, values(6))
    same(lambda a: a.sum(), torch.ones(6, dtype=torch.bool))
    same(lambda a: a + True, ints)


def test_64_bit_results_keep_their_dtype_and_lose_precision() -> None:
    same(lambda a: a * 2, values(6, dtype=torch.float64), rtol=1e-6)
    third = (torch.ones(4, dtype=torch.float64) / 3).to("neuron")
    product = third * 3
    assert product.dtype is torch.float64
    assert (torch.tensor([1 << 31]).to("neuron") + 0).cpu().item() == -(1 << 31)


def test_a_changing_number_compiles_nothing_new(neuron: Any) -> None:
    from torch_neuronx.eager.models import builder

    weight, gradient = values(16).to("neuron"), values(16).to("neuron")
    weight.add_(gradient, alpha=-0.5)
    weight * 0.25
    before = builder().cache.stats.to_json()
    for step in range(2, 12):
        wanted = weight.cpu() + gradient.cpu() * (-1 / step)
        weight.add_(gradient, alpha=-1 / step)
        torch.testing.assert_close(weight.cpu(), wanted)
        torch.testing.assert_close((weight * (1 / step)).cpu(), wanted * (1 / step))
    assert builder().cache.stats.to_json() == before


def test_results_without_elements_need_no_neff() -> None:
    same(lambda a: a + 1, torch.empty(0, 3))
    same(lambda a: a.sum(), torch.empty(0))
    same(lambda a, b: torch.cat([a, b]), torch.empty(0, 3), torch.ones(2, 3))


def test_tensors_without_dimensions() -> None:
    same(lambda a, b: a * b + 1, torch.tensor(2.0), torch.tensor(3.0))
    same(lambda a: a.logsumexp(0, keepdim=True), torch.tensor(2.0))
    same(lambda a, b: a * b, values(4), torch.tensor(3.0, dtype=torch.float64))


def test_results_in_lists_and_several_results() -> None:
    same(lambda a: torch.topk(a, 2), values(3, 8))
    same(lambda a: a.max(1), values(3, 8))
    same(lambda a: torch.cat(list(a.split(2)), 1), values(4, 8))


def test_casts() -> None:
    same(lambda a: a.to(torch.bfloat16), values(8))
    same(lambda a: a.to(torch.int32), values(8) * 10)
    same(lambda a: torch.empty(8, dtype=torch.float16, device=a.device).copy_(a), values(8))


def test_networks_forward_and_backward() -> None:
    functional = torch.nn.functional

    def loss(x: Any, w: Any, g: Any) -> Any:
        x, w, g = (t.detach().requires_grad_() for t in (x, w, g))
        hidden = functional.layer_norm(functional.conv2d(x, w, padding=1).relu(), (6, 6), None, None) * g
        pooled = functional.max_pool2d(hidden, 2).flatten(1)
        labels = torch.zeros(2, dtype=torch.long, device=x.device)
        total = functional.cross_entropy(functional.gelu(pooled), labels)
        total.backward()
        return total.detach(), x.grad, w.grad, g.grad

    same(loss, values(2, 3, 6, 6), values(4, 3, 3, 3), values(6), rtol=1e-4, atol=1e-5)


def test_batch_norm_moves_its_statistics() -> None:
    def run(x: Any) -> Any:
        norm = torch.nn.BatchNorm2d(3).to(x.device)
        norm(x)
        return norm(x).detach(), norm.running_mean, norm.running_var

    same(run, values(2, 3, 4, 4))


def test_attention() -> None:
    attend = torch.nn.functional.scaled_dot_product_attention
    same(lambda q, k, v: attend(q, k, v, is_causal=True), *(values(1, 2, 8, 4) for _ in range(3)))


def test_dropout_scales_what_it_keeps() -> None:
    kept = torch.nn.functional.dropout(torch.ones(10_000, device="neuron"), 0.25).cpu()
    assert kept.unique().tolist() == pytest.approx([0, 4 / 3])
    assert abs(float((kept == 0).float().mean()) - 0.25) < 0.02


def test_autocast_multiplies_in_bfloat16() -> None:
    a = values(8, 8).to("neuron")
    with torch.autocast("neuron", dtype=torch.bfloat16):
        assert (a @ a).dtype is torch.bfloat16
        assert a.softmax(-1).dtype is torch.float32


def test_mixed_devices_are_refused() -> None:
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.ones(3, device="neuron") + torch.ones(3)


def test_batch_norm_in_training_and_in_evaluation(tracked: Any) -> None:
    def normalised(training: bool, affine: bool) -> Callable[..., Any]:
        def run(x: Any) -> Any:
            norm = torch.nn.BatchNorm2d(3, affine=affine).to(x.device)
            norm.running_var.mul_(0.5)
            return norm.train(training)(x), norm.running_mean, norm.running_var

        return run

    for training in (True, False):
        for affine in (True, False):
            same(normalised(training, affine), values(4, 3, 5, 5))
    assert tracked.get_fallback_ops() == {}


def test_elements_chosen_by_numbers_need_no_host(tracked: Any) -> None:
    same(lambda a, i, j: a[i, j], values(4, 8), torch.tensor([[0], [3], [-1]]), torch.tensor([[1, 7]]))
    same(lambda a, i: a[:, i], values(4, 8) > 0, torch.tensor([2, 2, -3]))
    assert tracked.get_fallback_ops() == {}


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_networks_forward_and_backward(tracked: Any, kind: str) -> None:
    torch.manual_seed(0)
    host = getattr(torch.nn, kind)(5, 7, 2, batch_first=True)
    device = copy.deepcopy(host).to("neuron")
    steps = torch.randn(3, 4, 5)
    for model, given in ((host, steps), (device, steps.to("neuron"))):
        model(given)[0].square().sum().backward()
    torch.testing.assert_close(device(steps.to("neuron"))[0].cpu(), host(steps)[0])
    for expected, parameter in zip(host.parameters(), device.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad.cpu(), expected.grad, rtol=1e-4, atol=1e-5)
    assert tracked.get_fallback_ops() == {}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_of_16_bit_numbers_are_kept_in_32_bits(dtype: Any) -> None:
    ones = torch.ones(100_000, dtype=dtype, device="neuron")
    assert ones.mean().item() == 1
    assert ones.sum(dtype=torch.float32).item() == 100_000
    assert ones[:5000].cumsum(0)[-1].item() == torch.tensor(5000.0).to(dtype).item()


def test_zeros_that_take_no_memory_are_real_where_they_are_read() -> None:
    signs = torch.tensor([1.0, -2.0], device="neuron", requires_grad=True)
    torch.sgn(signs).sum().backward()
    assert signs.grad.tolist() == [0, 0]
    assert (torch._efficientzerotensor((2,), device="neuron") + 1).tolist() == [1, 1]
