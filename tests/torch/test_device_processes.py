"""How the device comes into a process, and what happens around its life."""

from __future__ import annotations

import pytest
from device_kit import DeviceHost

pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def test_importing_torch_makes_the_device_known_and_starts_nothing(device_host: DeviceHost) -> None:
    done = device_host.run(
        """
        import torch
        assert torch.neuron.is_available() and not torch.neuron.is_initialized()
        assert torch.device("neuron").type == "neuron"
        import sys
        print(sorted({"torch_mlir", "jaxlib"} & set(sys.modules)))
        """,
        NEURON_ENV_RUNTIME_DIR="/nowhere",
    )
    assert done.stdout.strip() == "[]"


def test_importing_torch_loads_of_the_plugin_only_what_makes_the_device(device_host: DeviceHost) -> None:
    program = """
        import sys, torch
        print(*sorted(name for name in sys.modules if not name.startswith("__editable__")))
    """
    without = set(device_host.run(program, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout.split())
    added = set(device_host.run(program).stdout.split()) - without
    assert {name for name in added if not name.startswith("torch_neuronx")} <= {"torch.neuron"}
    device = {f"torch_neuronx.neuron.{name}" for name in ("devices", "memory", "random", "streams")}
    register = {"torch_neuronx.device", "torch_neuronx.device.registration", "torch_neuronx.device.runtime"}
    compiling = {"torch_neuronx.device.after_import", "torch_neuronx.dynamo"}
    compiling |= {f"torch_neuronx.dynamo.{name}" for name in ("megacache", "metrics", "registration")}
    plain = {"torch_neuronx", "torch_neuronx._C", "torch_neuronx.neuron"}
    assert added - {"torch.neuron"} == plain | device | register | compiling


def test_what_the_package_offers_is_what_it_says_in_any_order(device_host: DeviceHost) -> None:
    done = device_host.run(
        """
        import torch_neuronx, torch_neuronx.lowering, torch_neuronx.program
        for name in torch_neuronx.__all__:
            assert getattr(torch_neuronx, name).__name__ == name
        from torch_neuronx import capture, lower
        print(callable(capture), callable(lower), hasattr(torch_neuronx, "nothing"))
        """
    )
    assert done.stdout.strip() == "True True False"


def test_autoload_can_be_switched_off_and_done_by_hand(device_host: DeviceHost) -> None:
    device_host.run(
        """
        import torch
        assert not hasattr(torch, "neuron")
        import torch_neuronx
        assert torch.neuron.is_available()
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )


def test_a_forked_child_is_refused(device_host: DeviceHost) -> None:
    done = device_host.run(
        """
        import os, torch
        torch.neuron.init()
        if os.fork() == 0:
            assert torch.neuron._is_in_bad_fork()
            try:
                torch.zeros(1, device="neuron")
            except RuntimeError as error:
                print(error, flush=True)
            os._exit(0)
        os.wait()
        assert torch.ones(1, device="neuron").item() == 1
        """,
        NEURON_RT_VISIBLE_CORES="2",
    )
    assert done.stdout.startswith("Cannot re-initialize Neuron runtime in forked subprocess")


def test_tensors_may_outlive_the_runtime_at_exit(device_host: DeviceHost) -> None:
    device_host.run(
        """
        import torch, builtins
        builtins.kept = [torch.ones(10, device="neuron") for _ in range(10)]
        """,
        NEURON_RT_VISIBLE_CORES="2",
    )


def test_an_executor_that_dies_ends_the_wait(device_host: DeviceHost) -> None:
    done = device_host.run(
        """
        import os, signal, torch
        from neuron_runtime.client import current_runtime
        tensor = torch.zeros(8, device="neuron")
        os.kill(current_runtime().executor_pid, signal.SIGKILL)
        try:
            for _ in range(10):
                tensor.fill_(1)
            torch.neuron.synchronize()
        except RuntimeError as error:
            print(error)
        """,
        NEURON_RT_VISIBLE_CORES="2",
    )
    assert "NRT_EXEC_UNIT_UNRECOVERABLE" in done.stdout
