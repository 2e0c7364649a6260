"""Compiled models compute and learn as on the CPU."""

from __future__ import annotations

import functools
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    # PyTorch's own, of a module that Dynamo imports when it meets an optimizer.
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"),
]

from compile_kit import example, train  # noqa: E402 - needs torch


@pytest.mark.parametrize("kind", ["mlp", "gpt", "cnn"])
def test_losses_gradients_and_buffers_of_training_are_those_of_the_cpu(compiling: Any, tracked: Any, kind: str) -> None:
    there = train(kind, "neuron", functools.partial(torch.compile, backend="neuron"))
    here = train(kind, "cpu")
    assert there.losses == pytest.approx(here.losses, rel=1e-4)
    assert there.losses[-1] < there.losses[0]
    for found, wanted in ((there.gradients, here.gradients), (there.state, here.state)):
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            torch.testing.assert_close(found[name], value, rtol=1e-3, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")
    assert tracked.get_fallback_ops() == {}
    # Forward, backward, and the optimizer's first and later steps, which differ in having momentum to go on.
    assert [entry.graph_name for entry in compiling()] == [
        "model_default_forward",
        "model_default_backward",
        "model_default_inference",
        "model_default_inference",
    ]


@pytest.mark.parametrize("kind", ["gpt", "cnn"])
def test_inference_is_that_of_the_cpu_in_one_graph(compiling: Any, kind: str) -> None:
    make, inputs, _ = example(kind)
    torch.manual_seed(0)
    model = make().eval()
    with torch.no_grad():
        wanted = model(inputs)
        compiled = torch.compile(model.to("neuron"), backend="neuron", fullgraph=True)
        for _ in range(2):
            torch.testing.assert_close(compiled(inputs.to("neuron")).cpu(), wanted, rtol=1e-4, atol=1e-5)
    assert len(compiling()) == 1


@pytest.mark.parametrize("as_tensor", [False, True])
def test_a_changing_learning_rate_compiles_no_graph_each_step(compiling: Any, as_tensor: bool) -> None:
    results = {}
    for device in ("cpu", "neuron"):
        weight = torch.nn.Parameter(torch.linspace(-1, 1, 12).reshape(3, 4).to(device))
        rate = torch.tensor(0.1) if as_tensor and device == "neuron" else 0.1
        optimizer = torch.optim.AdamW([weight], lr=rate)
        step = torch.compile(optimizer.step, backend="neuron") if device == "neuron" else optimizer.step
        for number in range(6):
            weight.grad = torch.full_like(weight, 0.3 + number)
            if isinstance(rate, torch.Tensor):
                rate.fill_(0.1 / (number + 1))
            else:
                optimizer.param_groups[0]["lr"] = 0.1 / (number + 1)
            step()
        results[device] = weight.detach().cpu()
    torch.testing.assert_close(results["neuron"], results["cpu"])
    # A float becomes an input of the graph when it changes for the first time.
    assert len(compiling()) == (1 if as_tensor else 2)
