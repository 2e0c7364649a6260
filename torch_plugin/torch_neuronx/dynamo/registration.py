"""Makes the backend and the device known to Dynamo when somebody imports Dynamo, and not before."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

from torch_neuronx.device.after_import import after_import

GROUP, NAME = "torch_dynamo_backends", "neuron"
BACKEND = "torch_neuronx.dynamo.backend:neuron_backend"


def register() -> None:
    """Costs nothing as long as nothing is compiled."""
    after_import("torch._dynamo.backends.registry", _register_backend)
    after_import("torch._dynamo.device_interface", _register_interface)
    after_import("torch.compiler._cache", _register_artifact)


def _register_backend(registry: ModuleType) -> None:
    """As the entry point of the installed distribution does; a source tree on the path has none."""
    registry._BACKENDS.setdefault(NAME, EntryPoint(NAME, BACKEND, GROUP))
    _choose_by_device(registry)


def _choose_by_device(registry: ModuleType) -> None:
    """Where nobody has set a default backend, a process that uses the device compiles for it."""
    chosen = registry.get_default_backend

    def get_default_backend() -> Any:
        from torch_neuronx import _C

        found = chosen()
        return NAME if found == "inductor" and _C.is_initialized() else found

    registry.get_default_backend = get_default_backend


def _register_artifact(_: ModuleType) -> None:
    from torch_neuronx.dynamo.megacache import register_artifact

    register_artifact()


def _register_interface(interfaces: ModuleType) -> None:
    from torch_neuronx.dynamo.interface import NeuronInterface

    interfaces.register_interface_for_device("neuron", NeuronInterface)
