"""The examples, compiled as one graph, compute and learn as on the CPU."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from example_kit import load_example

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    # PyTorch's own, of a module that Dynamo imports when it meets an optimizer.
    pytest.mark.filterwarnings("ignore:`torch.jit.script_method` is deprecated:DeprecationWarning"),
]


def test_a_gpt_learns_as_on_the_cpu(compiling: Any, tracked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    train = load_example("gpt", "train", monkeypatch).train
    small = {"layers": 1, "batch": 2, "context": 16}
    there = [loss.item() for loss in train("neuron", 12, backend="neuron", **small)]
    assert there == pytest.approx([loss.item() for loss in train("cpu", 12, **small)], rel=1e-3)
    assert there[-1] < there[0] - 0.5
    assert tracked.get_fallback_ops() == {}
    assert [entry.graph_name for entry in compiling()] == ["model_default_forward", "model_default_backward"]


def test_a_convolutional_network_reads_digits_as_on_the_cpu(
    compiling: Any, tracked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    digits = load_example("digits", "train", monkeypatch)

    def run(device: str) -> tuple[list[float], float]:
        model = digits.reader(device)
        if device == "neuron":
            model.compile(backend="neuron", fullgraph=True)
        losses = [loss.item() for loss in digits.train(model, device, 1, most=12)]
        return losses, digits.accuracy(model, device)

    (losses, read), (expected, read_there) = run("neuron"), run("cpu")
    assert losses == pytest.approx(expected, rel=1e-3)
    assert read == pytest.approx(read_there, abs=1.5 / digits.FOR_TESTING)
    assert read > 0.3
    assert tracked.get_fallback_ops() == {}
    assert len(compiling()) == 3  # the last is of evaluation


def test_minilm_embeds_as_on_the_cpu(compiling: Any, tracked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    minilm = load_example("minilm", "embed", monkeypatch)
    expected = minilm.embed(minilm.embedder(), "cpu", length=16)
    model = copy.deepcopy(minilm.embedder()).to("neuron")
    model.compile(backend="neuron", fullgraph=True)
    torch.testing.assert_close(minilm.embed(model, "neuron", length=16), expected, rtol=0, atol=1e-5)
    assert tracked.get_fallback_ops() == {}
    assert len(compiling()) == 1
