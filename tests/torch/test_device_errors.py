"""What the user is told when a compile or an execution fails, and where."""

from __future__ import annotations

import pytest
from device_kit import DeviceHost

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

# The executor forgets the model behind a plan: what a failing execution looks like to everything above it.
UNLOADED = """
import torch, traceback
from torch_neuronx.eager import models
tensor = torch.ones(3, 5, device="neuron")
tensor.neg()
torch.neuron.synchronize()
for model in list(models._loaded.values()):
    model.unload()
"""

# A compile that may use no memory.
STARVED = """
import torch
from neuron_runtime.compiler.warm import WarmCompiler
from torch_neuronx.eager import models
models.builder().compiler = WarmCompiler(memory_limit=1)
tensor = torch.ones(4, 9, device="neuron")
"""


def test_a_late_error_names_the_operator_that_caused_it(device_host: DeviceHost) -> None:
    done = device_host.run(
        UNLOADED
        + """
tensor.neg()
other = torch.zeros(3, 5, device="neuron")
other.fill_(1)
try:
    other.cpu()
except RuntimeError as error:
    print(error)
torch.neuron.synchronize()
assert torch.ones(2, device="neuron").tolist() == [1, 1]
"""
    )
    assert done.stdout.startswith("NRT Execution error occurred on Neuron for operation=aten::neg")
    assert 'error message="NRT EXECUTION FAILED: NRT_INVALID_HANDLE' in done.stdout


def test_launch_blocking_raises_at_the_operator(device_host: DeviceHost) -> None:
    done = device_host.run(
        UNLOADED
        + """
def the_line_at_fault():
    tensor.neg()

try:
    the_line_at_fault()
    print("too late")
except RuntimeError as error:
    print(error)
    print(traceback.extract_tb(error.__traceback__)[-1].name)
""",
        NEURON_LAUNCH_BLOCKING="1",
    )
    assert done.stdout.startswith("NRT Execution error occurred on Neuron for operation=aten::neg")
    assert done.stdout.rstrip().endswith("the_line_at_fault")


def test_a_failed_compile_raises_with_the_documented_text(device_host: DeviceHost) -> None:
    done = device_host.run(
        STARVED
        + """
for _ in range(2):
    try:
        tensor.erf()
    except RuntimeError as error:
        print(error)
"""
    )
    first, second = done.stdout.strip().splitlines()
    assert first.startswith("Compilation error occurred on Neuron for operation=aten::erf;")
    assert 'error message="COMPILATION FAILED: ' in first
    assert second.startswith("Compilation error occurred on Neuron for operation=aten::erf;")


def test_a_failed_compile_runs_on_the_host_where_that_is_allowed(device_host: DeviceHost) -> None:
    program = (
        STARVED
        + """
import torch_neuronx
try:
    assert torch.equal(tensor.erf().cpu(), torch.ones(4, 9).erf())
    print(torch_neuronx.get_fallback_ops())
except RuntimeError as error:
    print(error)
"""
    )
    switch = {"TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS": "0"}
    done = device_host.run(program, **switch)
    assert done.stdout.strip() == "{'aten::erf': 1}"
    assert "Operator 'aten::erf' executed via CPU fallback" in done.stderr
    done = device_host.run(program, **switch, NEURON_FALLBACK_ENABLED="0")
    assert done.stdout.startswith("CPU fallback is disabled for operation=aten::erf")


@pytest.mark.usefixtures("neuron")
def test_channels_last_is_refused_wherever_it_is_asked_for() -> None:
    image = torch.ones(1, 2, 3, 4, device="neuron")
    text = "Neuron only supports contiguous/preserve memory format"
    for ask in (
        lambda: image.to(memory_format=torch.channels_last),
        lambda: image.contiguous(memory_format=torch.channels_last),
        lambda: image.clone(memory_format=torch.channels_last),
        lambda: torch.empty_like(image, memory_format=torch.channels_last),
        lambda: torch.nn.Conv2d(2, 3, 2, device="neuron").to(memory_format=torch.channels_last),
    ):
        with pytest.raises(RuntimeError, match=text):
            ask()
