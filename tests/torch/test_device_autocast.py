"""`torch.autocast("neuron")`: which operators compute in which precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("neuron")]

F = torch.nn.functional
LOWER: dict[str, Callable[[Any, Any], Any]] = {
    "matmul": lambda x, _: x @ x.T,
    "linear": lambda x, _: F.linear(x, x),
    "bmm": lambda x, _: torch.bmm(x[None], x.T[None]),
    "conv": lambda _, image: F.conv2d(image, torch.ones(4, 3, 3, 3, device="neuron")),
    "attention": lambda _, image: F.scaled_dot_product_attention(image, image, image),
}
FLOAT32: dict[str, Callable[[Any, Any], Any]] = {
    "softmax": lambda x, _: F.softmax(x, -1),
    "log_softmax": lambda x, _: F.log_softmax(x, -1),
    "layer_norm": lambda x, _: F.layer_norm(x, [8]),
    "nll_loss": lambda x, _: F.nll_loss(x, torch.tensor([0, 1, 2, 3], device="neuron")),
    "mse_loss": lambda x, _: F.mse_loss(x, x * 2),
    "exp": lambda x, _: x.exp(),
    "sum": lambda x, _: x.sum(),
    "norm": lambda x, _: torch.ops.aten.norm(x, 2),
    "norm of rows": lambda x, _: torch.ops.aten.norm(x, 2, [1], False),
}


def inputs(dtype: Any) -> tuple[Any, Any]:
    values = torch.arange(1, 33, dtype=torch.float32).reshape(4, 8) / 32
    image = torch.arange(384, dtype=torch.float32).reshape(2, 3, 8, 8) / 384
    return values.to(dtype).to("neuron"), image.to(dtype).to("neuron")


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", LOWER)
def test_matrix_products_compute_in_the_lower_precision(name: str, dtype: str) -> None:
    wanted = getattr(torch, dtype)
    with torch.autocast("neuron", dtype=wanted):
        assert LOWER[name](*inputs(torch.float32)).dtype is wanted
    assert LOWER[name](*inputs(torch.float32)).dtype is torch.float32


@pytest.mark.parametrize("name", FLOAT32)
def test_what_sums_many_numbers_computes_in_float32(name: str) -> None:
    given = inputs(torch.bfloat16)
    with torch.autocast("neuron", dtype=torch.bfloat16):
        made = FLOAT32[name](*given)
    assert made.dtype is torch.float32
    torch.testing.assert_close(made.cpu(), FLOAT32[name](*(tensor.float() for tensor in given)).cpu())


def test_cross_entropy_sums_in_float32_what_its_input_has_room_for() -> None:
    # PyTorch asks for the logarithms in the type of the input, here as on its other devices.
    given, target = inputs(torch.bfloat16)[0], torch.tensor([0, 1, 2, 3], device="neuron")
    with torch.autocast("neuron", dtype=torch.bfloat16):
        made = F.cross_entropy(given, target)
    assert made.dtype is torch.float32
    torch.testing.assert_close(made.cpu(), F.cross_entropy(given.float(), target).cpu(), rtol=2**-7, atol=0)


def test_the_widest_type_wins_where_several_meet() -> None:
    low, high = inputs(torch.bfloat16)[0], inputs(torch.float32)[0]
    with torch.autocast("neuron", dtype=torch.bfloat16):
        assert torch.cat([low, high]).dtype is torch.float32
        assert torch.addcmul(low, low, high).dtype is torch.float32
        assert torch.cat([low, low]).dtype is torch.bfloat16


def test_operators_of_no_list_keep_their_type() -> None:
    with torch.autocast("neuron", dtype=torch.bfloat16):
        for dtype in (torch.bfloat16, torch.float32):
            assert F.relu(inputs(dtype)[0]).dtype is dtype


def test_gradients_have_their_parameters_type() -> None:
    layer = torch.nn.Linear(8, 4).to("neuron")
    with torch.autocast("neuron", dtype=torch.bfloat16):
        loss = layer(inputs(torch.float32)[0]).float().square().mean()
    loss.backward()
    assert layer.weight.grad.dtype is torch.float32
    assert layer.weight.grad.cpu().abs().sum() > 0


def test_the_unsafe_loss_is_refused_and_says_what_to_use() -> None:
    probability = inputs(torch.float32)[0]
    with (
        torch.autocast("neuron", dtype=torch.bfloat16),
        pytest.raises(RuntimeError, match="Use binary_cross_entropy_with_logits"),
    ):
        F.binary_cross_entropy(probability, probability)
    assert F.binary_cross_entropy(probability, probability).isfinite()


def test_other_types_switch_autocast_off_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="only supports dtypes of torch.float32, torch.float16, torch.bfloat16"):
        context = torch.autocast("neuron", dtype=torch.float64)
    with context:
        assert LOWER["matmul"](*inputs(torch.float32)).dtype is torch.float32
