"""A program on the device: its NEFF loaded, its weights in HBM, ready to be called with torch tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neuron_runtime.client.model import NrtpyModel
from neuron_runtime.client.tensor import NrtpyTensor
from neuron_runtime.tensors import TensorSpec
from torch_neuronx.dtypes import from_numpy, to_numpy

if TYPE_CHECKING:
    import torch

    from neuron_runtime.client.session import Session
    from torch_neuronx.program import Program


class DeviceWeights:
    """Tensors uploaded to one NeuronCore, each once: programs of one module for several shapes share them."""

    def __init__(self, session: Session, core_id: int = 0) -> None:
        self.session = session
        self.core_id = core_id
        self._uploaded: dict[tuple[Any, ...], tuple[torch.Tensor, NrtpyTensor]] = {}

    def upload(self, tensor: torch.Tensor, spec: TensorSpec) -> NrtpyTensor:
        """The tensor's copy in HBM, as it was when it was first uploaded. Raises NrtError(NRT_RESOURCE)."""
        key = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        found = self._uploaded.get(key)
        if found is None:
            made = NrtpyTensor(self.session, self.core_id, spec)
            made.write_from_numpy(to_numpy(tensor))
            # The host tensor is kept: another could else come to lie at its address and be taken for it.
            found = self._uploaded[key] = (tensor, made)
        return found[1]


class LoadedProgram:
    """Call it as the module it was captured from; results are CPU tensors."""

    def __init__(self, program: Program, neff: bytes, weights: DeviceWeights, *, name: str = "graph") -> None:
        """Loads the NEFF and uploads the weights. Raises NrtError."""
        self.program = program
        self._session = weights.session
        self._core_id = weights.core_id
        self.model = NrtpyModel(self._session, neff, name, self._core_id)
        specs = self.model.manifest.inputs
        held = {number: weights.upload(tensor, specs[number]) for number, tensor in program.weights().items()}
        # Inputs that a call overwrites are this program's own: no other program may see them change.
        for mutation in program.mutations:
            number = mutation.input
            if number in held:
                held[number] = NrtpyTensor(self._session, self._core_id, specs[number])
                held[number].write_from_numpy(to_numpy(program.weights()[number]))
        self._inputs: list[NrtpyTensor] = [
            held[number] if number in held else NrtpyTensor(self._session, self._core_id, spec)
            for number, spec in enumerate(specs)
        ]
        self._outputs = list(self.model.allocate_outputs().values())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs once. Raises InputMismatchError for arguments of another form, NrtError when the execution fails."""
        given = self.program.arguments(*args, **kwargs)
        for number, tensor in given.items():
            self._inputs[number].write_from_numpy(to_numpy(tensor))
        self.model.execute(self._inputs, self._outputs)
        outputs = [from_numpy(tensor.numpy()) for tensor in self._outputs]
        for mutation in self.program.mutations:
            self._inputs[mutation.input].copy_from(self._outputs[mutation.output])
            if mutation.input in given:
                given[mutation.input].copy_(outputs[mutation.output])
        return self.program.result(outputs)
