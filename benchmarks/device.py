"""A graph on the simulated device, its inputs in HBM: what the benchmarks time."""

from __future__ import annotations

from typing import Any

from neuron_runtime.client import current_runtime
from neuron_runtime.client.model import NrtpyModel
from neuron_runtime.client.tensor import NrtpyTensor
from torch_neuronx.dtypes import to_numpy


class OnDevice:
    """The same graph on the simulated device, its inputs in HBM."""

    def __init__(self, neff: bytes, arrays: list[Any]) -> None:
        session = current_runtime()
        self.core = session.core(0)
        self.model = NrtpyModel(session, neff, "bench")
        self.inputs = [NrtpyTensor(session, 0, spec) for spec in self.model.manifest.inputs]
        for tensor, array in zip(self.inputs, arrays, strict=True):
            tensor.write_from_numpy(to_numpy(array))
        self.outputs = list(self.model.allocate_outputs().values())

    def submit(self) -> int:
        return self.model.execute(self.inputs, self.outputs)

    def run(self) -> None:
        self.core.wait(self.submit())
