"""Operators that do not compile, errors of operators, and what is counted."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from device_kit import DeviceHost

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_an_operator_that_cannot_compile_runs_on_the_host_and_says_so_once(
    tracked: Any, caplog: pytest.LogCaptureFixture
) -> None:
    tensor = torch.tensor([0.0, 1.0, 0.0, 2.0]).to("neuron")
    with caplog.at_level(logging.WARNING, "torch_neuronx"):
        for _ in range(3):
            assert tensor.nonzero().cpu().tolist() == [[1], [3]]
    assert [r.message for r in caplog.records].count("Operator 'aten::nonzero' executed via CPU fallback") <= 1
    assert tracked.get_fallback_ops() == {"aten::nonzero": 3}
    tracked.clear_op_tracking()
    assert tracked.get_fallback_ops() == {}


def test_executed_operators_are_counted(tracked: Any) -> None:
    tensor = torch.ones(4).to("neuron")
    for _ in range(3):
        tensor = tensor * 2
    assert tracked.get_executed_ops() == {"aten::mul": 3}
    assert tracked.get_fallback_ops() == {}


def test_in_place_and_out_fallbacks_reach_the_device(tracked: Any) -> None:
    tensor = torch.arange(6.0).to("neuron")
    values, vectors = torch.empty(0, device="neuron"), torch.empty(0, device="neuron")
    torch.linalg.eigh(torch.diag(tensor + 1), out=(values, vectors))
    assert values.cpu().tolist() == [1, 2, 3, 4, 5, 6]
    assert "aten::_linalg_eigh" in tracked.get_fallback_ops()
    mask = torch.tensor([False, True, False, False, True, False]).to("neuron")
    tensor.masked_scatter_(mask, torch.tensor([9.0, 8.0]).to("neuron"))
    assert tensor.cpu().tolist() == [0, 9, 2, 3, 8, 5]


def test_wrong_arguments_get_the_error_of_pytorch(neuron: Any) -> None:
    with pytest.raises(RuntimeError, match=r"size of tensor a \(3\) must match the size of tensor b \(4\)"):
        torch.ones(3, device="neuron") + torch.ones(4, device="neuron")
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        torch.ones(3, 3, device="neuron") @ torch.ones(4, 4, device="neuron")


def test_fallback_can_be_forbidden(device_host: DeviceHost) -> None:
    done = device_host.run(
        """
        import torch
        try:
            torch.ones(3).to("neuron").nonzero()
        except RuntimeError as error:
            print(error)
        """,
        NEURON_RT_VISIBLE_CORES="2",
        NEURON_FALLBACK_ENABLED="0",
    )
    assert done.stdout.startswith("CPU fallback is disabled for operation=aten::nonzero")


def test_an_execution_error_names_its_operator_at_the_next_synchronisation(neuron: Any) -> None:
    from torch_neuronx import _C

    neuron.synchronize()
    _C.submit(0, 1, 123456, 0, [])
    with pytest.raises(RuntimeError, match="NRT Execution error occurred on Neuron for operation=") as caught:
        neuron.synchronize()
    assert "NRT EXECUTION FAILED: NRT_INVALID_HANDLE(3)" in str(caught.value)
    neuron.synchronize()
