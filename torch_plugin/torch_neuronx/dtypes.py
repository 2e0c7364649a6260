"""PyTorch dtypes by the names a NEFF uses, and tensors shared with NumPy."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from neuron_runtime.tensors import ITEMSIZE, TensorSpec

if TYPE_CHECKING:
    import numpy
    import torch

# NumPy itself has no such type: ml_dtypes does, and PyTorch shares memory with neither, so the bits travel as integers.
_THROUGH_BITS = {"bfloat16": "int16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}


@functools.cache
def _names() -> dict[torch.dtype, str]:
    import torch

    return {getattr(torch, name): name for name in ITEMSIZE}


def dtype_name(dtype: torch.dtype) -> str:
    """The NEFF's name of `dtype`; ValueError when a NEFF cannot hold it."""
    name = _names().get(dtype)
    if name is None:
        raise ValueError(f"{dtype} has no place in a NEFF; known: {', '.join(ITEMSIZE)}")
    return name


def spec_of(name: str, tensor: torch.Tensor) -> TensorSpec:
    """The description of a dense tensor with static sizes; ValueError for any other."""
    import torch

    if tensor.layout is not torch.strided:
        raise ValueError(f"{tensor.layout} tensors have no place in a NEFF")
    return TensorSpec(name, tuple(tensor.shape), dtype_name(tensor.dtype))


def to_numpy(tensor: torch.Tensor) -> numpy.ndarray[Any, Any]:
    """A row-major array over the tensor's memory, copied only when the tensor is not contiguous on the CPU."""
    import torch

    tensor = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    name = dtype_name(tensor.dtype)
    bits = _THROUGH_BITS.get(name)
    array: numpy.ndarray[Any, Any]
    if bits is None:
        array = tensor.numpy()
    else:
        import ml_dtypes

        array = tensor.view(getattr(torch, bits)).numpy().view(getattr(ml_dtypes, name))
    return array


def from_numpy(array: numpy.ndarray[Any, Any]) -> torch.Tensor:
    """A tensor with the array's values; it shares the memory of a writable array and copies a read-only one."""
    import numpy
    import torch

    name = array.dtype.name
    if not array.flags.writeable or not array.flags.c_contiguous:
        array = numpy.array(array, order="C", copy=True)
    bits = _THROUGH_BITS.get(name)
    if bits is None:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(bits)).view(getattr(torch, name))
