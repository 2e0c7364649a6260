"""What programs call. Names and behaviour follow nrtpy, so `from neuron_runtime import client as nrtpy` works.

One process holds one runtime, made on first use. Work is asynchronous and in order on each NeuronCore; errors
surface at the next synchronisation (`NrtpyTensor.numpy`, `synchronize`) as NrtError.
"""

from __future__ import annotations

from neuron_runtime.client.model import BenchmarkResult, NrtpyModel, TensorMetadata
from neuron_runtime.client.runtime import configure, current_runtime, reset, synchronize
from neuron_runtime.client.tensor import NrtpyTensor
from neuron_runtime.status import NrtError, NrtpyError, NrtStatus

__all__ = [
    "BenchmarkResult",
    "NrtError",
    "NrtStatus",
    "NrtpyError",
    "NrtpyModel",
    "NrtpyTensor",
    "TensorMetadata",
    "configure",
    "current_runtime",
    "reset",
    "synchronize",
]
