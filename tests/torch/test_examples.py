"""The examples compute on the device what they compute on the CPU, and nothing of them falls back."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from example_kit import load_example

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`example("gpt", "train")` imports examples/gpt/train.py, whose neighbours it finds as when it is run."""

    return lambda folder, name: load_example(folder, name, monkeypatch)


def test_a_gpt_learns_as_on_the_cpu(tracked: Any, example: Any) -> None:
    train = example("gpt", "train").train
    small = {"layers": 1, "batch": 2, "context": 16}
    there = [loss.item() for loss in train("neuron", 12, **small)]
    assert there == pytest.approx([loss.item() for loss in train("cpu", 12, **small)], rel=1e-3)
    assert there[-1] < there[0] - 0.5
    assert tracked.get_fallback_ops() == {}


def test_a_convolutional_network_reads_digits_as_on_the_cpu(tracked: Any, example: Any) -> None:
    digits = example("digits", "train")

    def run(device: str) -> tuple[list[float], float]:
        model = digits.reader(device)
        losses = list(digits.train(model, device, 1, most=12))
        assert all(loss.device.type == device for loss in losses)
        return [loss.item() for loss in losses], digits.accuracy(model, device)

    (losses, read), (expected, read_there) = run("neuron"), run("cpu")
    assert losses == pytest.approx(expected, rel=1e-3)
    assert read == pytest.approx(read_there, abs=1.5 / digits.FOR_TESTING)
    assert read > 0.3
    assert tracked.get_fallback_ops() == {}


def test_minilm_embeds_as_on_the_cpu(tracked: Any, example: Any) -> None:
    minilm = example("minilm", "embed")
    expected = minilm.embed(minilm.embedder(), "cpu", length=16)
    found = minilm.embed(copy.deepcopy(minilm.embedder()).to("neuron"), "neuron", length=16)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    assert tracked.get_fallback_ops() == {}
