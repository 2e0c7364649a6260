"""NumPy arrays over memory that other processes share."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any

from neuron_runtime.tensors import TensorSpec

if TYPE_CHECKING:
    import numpy as np


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a canonical dtype name (`neuron_runtime.tensors.ITEMSIZE`)."""
    import numpy as np

    if name.startswith(("bfloat", "float8")):
        import ml_dtypes

        scalar: type[Any] = getattr(ml_dtypes, name)
        return np.dtype(scalar)
    return np.dtype(name)


def array_over(memory: mmap.mmap, spec: TensorSpec, offset: int) -> np.ndarray[Any, Any]:
    """The tensor at byte `offset` of `memory`, without a copy. The array keeps the mapping alive."""
    import numpy as np

    dtype = numpy_dtype(spec.dtype)
    if spec.nbytes == 0:
        return np.empty(spec.shape, dtype)
    return np.frombuffer(memory, dtype, spec.nbytes // dtype.itemsize, offset).reshape(spec.shape)
