"""torch_neuronx on a simulated Trainium.

Importing torch makes `neuron` a device; nothing has to be imported from here for that. `Program.build(module, args)`
captures and lowers a whole program; `capture` and `lower` are its two halves. `import torch` runs this file, so it
imports what it offers when that is asked for.
"""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch_neuronx.captured import Captured, GraphInput, Mutation, Role
    from torch_neuronx.capturing import capture
    from torch_neuronx.errors import CaptureError, FactoryError, InputMismatchError, LoweringError
    from torch_neuronx.factory import Example, build_example, load_factory
    from torch_neuronx.lowering import Lowered, lower, lower_graph
    from torch_neuronx.program import Program
    from torch_neuronx.tracing import trace
    from torch_neuronx.tracking import clear_op_tracking, get_executed_ops, get_fallback_ops

__all__ = [
    "CaptureError",
    "Captured",
    "Example",
    "FactoryError",
    "GraphInput",
    "InputMismatchError",
    "Lowered",
    "LoweringError",
    "Mutation",
    "Program",
    "Role",
    "build_example",
    "capture",
    "clear_op_tracking",
    "get_executed_ops",
    "get_fallback_ops",
    "load_factory",
    "lower",
    "lower_graph",
    "trace",
]

_HOMES = {
    "capturing": ["capture"],
    "captured": ["Captured", "GraphInput", "Mutation", "Role"],
    "errors": ["CaptureError", "FactoryError", "InputMismatchError", "LoweringError"],
    "factory": ["Example", "build_example", "load_factory"],
    "lowering": ["Lowered", "lower", "lower_graph"],
    "program": ["Program"],
    "tracing": ["trace"],
    "tracking": ["clear_op_tracking", "get_executed_ops", "get_fallback_ops"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'torch_neuronx' has no attribute '{name}'")
    value = getattr(importlib.import_module(f"torch_neuronx.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def _autoload() -> None:
    """What `import torch` calls, by the entry point `torch.backends`."""
    from torch_neuronx.device.registration import register

    register()


if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0" or hasattr(sys.modules.get("torch"), "compile"):
    # Nobody else will: PyTorch may not, or has been imported already.
    _autoload()
