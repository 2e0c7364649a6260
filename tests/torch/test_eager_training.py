"""Training on the device gives the losses of the CPU, and keeps its memory."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def losses(device: str, steps: int, optimizer: str) -> list[float]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3)).to(device)
    step = getattr(torch.optim, optimizer)(model.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.LinearLR(step, 1.0, 0.1, steps)
    inputs = torch.randn(32, 8, generator=torch.Generator().manual_seed(1))
    labels = (inputs.sum(1) > 0).long() + (inputs[:, 0] > 1).long()
    found = []
    for _ in range(steps):
        step.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs.to(device)), labels.to(device))
        loss.backward()
        step.step()
        schedule.step()
        found.append(loss.detach())
    return [float(loss) for loss in found]


@pytest.mark.parametrize("optimizer", ["SGD", "AdamW"])
def test_an_mlp_learns_as_on_the_cpu(tracked: Any, optimizer: str) -> None:
    there = losses("neuron", 12, optimizer)
    assert tracked.get_fallback_ops() == {}
    assert there == pytest.approx(losses("cpu", 12, optimizer), rel=1e-4)
    assert there[-1] < there[0]


def test_memory_and_plans_stop_growing(neuron: Any) -> None:
    from torch_neuronx import _C

    losses("neuron", 3, "SGD")
    neuron.synchronize()
    held = neuron.memory_allocated(), neuron.memory_reserved(), _C.plan_count()
    losses("neuron", 10, "SGD")
    neuron.synchronize()
    assert (neuron.memory_allocated(), neuron.memory_reserved(), _C.plan_count()) == held
