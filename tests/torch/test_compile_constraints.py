"""What the backend refuses, what it warns of, and what the switches change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("compiling")]

STATIC = "Dynamic shapes detected in the model, but torch-neuronx requires static shapes."


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(function, backend="neuron", fullgraph=True, **options)


def double(x: Any) -> Any:
    return x * 2


def inverse(x: Any) -> Any:
    kept = torch.nn.functional.dropout(x, 0.5)
    return kept * torch.special.airy_ai(kept.detach())


def refused(call: Callable[[], Any]) -> str:
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed) as caught:
        call()
    return str(caught.value)


def test_dynamic_shapes_are_refused_with_the_dimensions() -> None:
    text = refused(lambda: compiled(double, dynamic=True)(torch.ones(3, 4, device="neuron")))
    assert f"{STATIC} Found 2 dynamic dimension(s)" in text
    x = torch.ones(3, 4, device="neuron")
    torch._dynamo.mark_dynamic(x, 0)
    torch._dynamo.reset()
    assert f"{STATIC} Found 1 dynamic dimension(s)" in refused(lambda: compiled(double)(x))


def test_each_shape_and_each_number_is_a_graph_of_its_own(neuron: Any) -> None:
    step = compiled(lambda x, n: (x * n).sum(0) + x.shape[0])
    for length in (3, 5, 7, 5, 3):
        x = torch.ones(length, 2, device="neuron")
        assert step(x, length).tolist() == [length * length + length] * 2
    assert len(neuron.get_dynamo_metrics()) == 3


def test_other_modes_warn_and_run_as_the_default() -> None:
    with pytest.warns(
        UserWarning,
        match="^Neuron backend does not support mode='max-autotune', falling back to default mode.$",
    ):
        assert compiled(double, mode="max-autotune")(torch.ones(2, device="neuron")).tolist() == [2, 2]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"fulgraph": True}, "no option `fulgraph`\nit knows: model_name, fallback_execution"),
        ({"dynamic": True}, "requires static shapes"),
        ({"model_name": ""}, "`model_name` is ''"),
        ({"fallback_execution": "maybe"}, "`fallback_execution` is 'maybe'"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, Any], text: str) -> None:
    assert text in refused(lambda: compiled(double, options=options)(torch.ones(2, device="neuron")))


def test_known_options_are_taken(neuron: Any) -> None:
    options = {"model_name": "Tiny", "dynamic": False, "fallback_execution": False}
    compiled(double, options=options)(torch.ones(2, device="neuron"))
    assert [entry.model_name for entry in neuron.get_dynamo_metrics()] == ["tiny"]


def test_an_operator_that_does_not_lower_is_named_with_its_place() -> None:
    text = refused(lambda: compiled(inverse)(torch.zeros(4, device="neuron")))
    assert "NEFFCompilationError" in text
    assert "`aten.special_airy_ai.default`" in text
    assert f"{__file__}:" in text
    assert "in inverse" in text


@pytest.mark.parametrize("by", ["option", "environment"])
def test_a_fallback_runs_the_graph_operator_by_operator(
    neuron: Any, tracked: Any, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    if by == "environment":
        monkeypatch.setenv("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION", "0")
    options = {"fallback_execution": True} if by == "option" else None
    x = torch.full((64,), 0.25, device="neuron", requires_grad=True)
    neuron.manual_seed(1)
    y = compiled(inverse, options=options)(x)
    y.sum().backward()
    neuron.manual_seed(1)
    torch.testing.assert_close(y.detach().cpu(), inverse(x).detach().cpu())
    assert torch.equal(x.grad.cpu() != 0, y.detach().cpu() != 0)
    assert "aten::special_airy_ai" in tracked.get_fallback_ops()


def test_a_fallback_is_not_made_where_the_option_forbids_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION", "0")
    options = {"fallback_execution": False}
    assert "special_airy_ai" in refused(lambda: compiled(inverse, options=options)(torch.zeros(4, device="neuron")))


class HalfSupported(torch.autograd.Function):
    """Its backward has an operator that does not lower."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (x,) = ctx.saved_tensors
        return gradient * torch.special.airy_ai(x)


@pytest.mark.filterwarnings("ignore:.*autograd.function.Function.* should not be instantiated:DeprecationWarning")
def test_a_backward_that_does_not_lower_falls_back_by_itself() -> None:
    x = torch.full((4,), 0.25, device="neuron", requires_grad=True)
    compiled(lambda x: HalfSupported.apply(x), options={"fallback_execution": True})(x).sum().backward()
    assert x.grad.device.type == "neuron"
    torch.testing.assert_close(x.grad.cpu(), torch.special.airy_ai(torch.full((4,), 0.25)))


def test_tensors_on_the_host_are_copied_to_the_device() -> None:
    layer, x = torch.nn.Linear(3, 3), torch.ones(2, 3)
    y = compiled(layer)(x)
    assert y.device.type == "neuron"
    torch.testing.assert_close(y.cpu(), layer(x))
    y.sum().backward()
    assert layer.weight.grad.device.type == "cpu"
    assert layer.weight.grad.tolist() == [[2.0] * 3] * 3


def test_tensors_on_the_host_are_overwritten_there() -> None:
    x = torch.ones(3)
    compiled(lambda x: x.add_(1).sum())(x)
    assert x.tolist() == [2, 2, 2]


def test_numbers_on_the_host_travel_with_the_call(neuron: Any) -> None:
    step, x = compiled(lambda x, scale: x * scale), torch.ones(2, device="neuron")
    for scale in (2.5, 3.0):
        assert step(x, torch.tensor(scale)).tolist() == [scale, scale]
    assert len(neuron.get_dynamo_metrics()) == 1


def test_results_stay_on_the_host_in_retain_device_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_RETAIN_DEVICE_MODE", "1")
    assert compiled(double)(torch.ones(2)).device.type == "cpu"


def test_a_program_on_the_device_returns_to_the_host_what_it_sends_there() -> None:
    x = torch.ones(2, device="neuron")
    sent, made, drawn, kept = compiled(lambda x: ((x * 2).cpu(), torch.arange(2), torch.rand(2), x + 1))(x)
    assert [value.device.type for value in (sent, made, drawn, kept)] == ["cpu", "cpu", "cpu", "neuron"]
    assert (sent.tolist(), made.tolist()) == ([2, 2], [0, 1])


def test_tensors_on_the_host_are_refused_without_autocopy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_NEURONX_DYNAMO_DISABLE_CPU_AUTOCOPY", "1")
    with pytest.raises(RuntimeError, match="Input tensor at index 0 is on cpu device"):
        compiled(double)(torch.ones(2))
    assert compiled(double)(torch.ones(2, device="neuron")).tolist() == [2, 2]


def test_the_backend_is_the_default_where_the_device_is_in_use(neuron: Any) -> None:
    assert torch.compiler.get_default_backend() == "neuron"
    torch.compile(double)(torch.ones(2, device="neuron"))
    assert len(neuron.get_dynamo_metrics()) == 1
    torch.compiler.set_default_backend("eager")
    try:
        assert torch.compiler.get_default_backend() == "eager"
    finally:
        torch.compiler.set_default_backend(None)
