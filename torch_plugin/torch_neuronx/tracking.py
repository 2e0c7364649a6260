"""Which operators ran on the device and which on the host. Call `torch.neuron.synchronize()` first."""

from __future__ import annotations


def get_executed_ops() -> dict[str, int]:
    """Operators that ran on the device, with how often."""
    from torch_neuronx import _C

    executed: dict[str, int] = _C.tracked()[0]
    return executed


def get_fallback_ops() -> dict[str, int]:
    """Operators that ran on the host, with how often."""
    from torch_neuronx import _C

    fallback: dict[str, int] = _C.tracked()[1]
    return fallback


def clear_op_tracking() -> None:
    """Forgets both."""
    from torch_neuronx import _C

    _C.clear_tracking()
