"""torch_neuronx on a simulated Trainium.

Importing torch makes `neuron` a device; nothing has to be imported from here for that. `Program.build(module, args)`
captures and lowers a whole program; `capture` and `lower` are its two halves. Neither torch nor torch-mlir is imported
before it is needed.
"""

import os
import sys

from torch_neuronx.capture import capture
from torch_neuronx.captured import Captured, GraphInput, Mutation, Role
from torch_neuronx.errors import CaptureError, FactoryError, InputMismatchError, LoweringError
from torch_neuronx.factory import Example, build_example, load_factory
from torch_neuronx.lowering import Lowered, lower, lower_graph
from torch_neuronx.program import Program
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
]


def _autoload() -> None:
    """What `import torch` calls, by the entry point `torch.backends`."""
    from torch_neuronx.device.registration import register

    register()


if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0" or hasattr(sys.modules.get("torch"), "compile"):
    # Nobody else will: PyTorch may not, or has been imported already.
    _autoload()
