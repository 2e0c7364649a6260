"""A tensor in HBM."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from neuron_runtime.arrays import array_over, numpy_dtype
from neuron_runtime.client.core import Core
from neuron_runtime.client.runtime import current_runtime
from neuron_runtime.protocol.queue import CommandKind
from neuron_runtime.status import NrtpyError
from neuron_runtime.tensors import TensorSpec

if TYPE_CHECKING:
    import numpy as np

    from neuron_runtime.client.session import Session


class NrtpyTensor:
    """Device memory of one shape and dtype; freed when the object is collected, or by `free`."""

    def __init__(self, session: Session, core_id: int, spec: TensorSpec) -> None:
        """Uninitialised memory. Raises NrtError(NRT_RESOURCE) when the core's HBM is full."""
        self._session = session
        self.core_id = core_id
        self.spec = spec
        self._core = session.core(core_id)
        self._offset = self._core.allocate(spec.nbytes)
        self._uses = _Uses()
        self._release = weakref.finalize(self, _release, session, self._core, self._offset, self._uses)
        self._release.atexit = False

    @classmethod
    def allocate(cls, shape: tuple[int, ...], dtype: str, name: str = "", core_id: int = 0) -> NrtpyTensor:
        """Uninitialised memory for `shape` elements of `dtype` (a NumPy or ml_dtypes name)."""
        return cls(current_runtime(), core_id, TensorSpec(name, tuple(shape), dtype))

    @classmethod
    def from_numpy(cls, array: np.ndarray[Any, Any], name: str | None = None, core_id: int = 0) -> NrtpyTensor:
        """Allocates on the core and copies `array`, made contiguous first."""
        tensor = cls.allocate(array.shape, array.dtype.name, name or "", core_id)
        tensor.write_from_numpy(array)
        return tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return self.spec.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return numpy_dtype(self.spec.dtype)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def nbytes(self) -> int:
        return self.spec.nbytes

    def write_from_numpy(self, array: np.ndarray[Any, Any]) -> None:
        """Overwrites in place, after the commands that still use the tensor. Raises ValueError for another size."""
        import numpy as np

        if array.nbytes != self.nbytes:
            raise ValueError(f"an array of {array.nbytes} bytes does not fit a tensor of {self.nbytes}")
        memory = self._synchronized()
        np.copyto(memory, np.ascontiguousarray(array).reshape(-1).view(memory.dtype).reshape(self.shape))

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy on the host, once the commands that write it have ended. Raises NrtError when one failed."""
        return self._synchronized().copy()

    def fill(self, byte: int) -> None:
        """Sets every byte, in the order of the core's queue."""
        core = self.use()
        self.used(core.submit(CommandKind.FILL, 0, 0, (self.address(), self.nbytes, byte)))

    def copy_from(self, source: NrtpyTensor) -> None:
        """Copies a tensor of the same size on the same core, in the order of the core's queue."""
        if source.core_id != self.core_id or source.nbytes != self.nbytes:
            raise NrtpyError("device copies need two tensors of one size on one NeuronCore")
        core = self.use()
        source.use()
        sequence = core.submit(CommandKind.COPY, 0, 0, (self.address(), source.address(), self.nbytes))
        self.used(sequence)
        source.used(sequence)

    def free(self) -> None:
        """Gives the memory back now; using the tensor afterwards raises NrtpyError."""
        self._release()
        if not self._session.closed:
            self._core.usage()

    def use(self) -> Core:
        """The core it lies on. Raises NrtpyError when the tensor was freed or its runtime closed."""
        self._session.check()
        self.address()
        return self._core

    def address(self) -> int:
        """Where it lies in its core's HBM. Raises NrtpyError when it was freed."""
        if not self._release.alive:
            raise NrtpyError(f"tensor `{self.name}` has been freed")
        return self._offset

    def used(self, sequence: int) -> None:
        """Notes that command `sequence` reads or writes this tensor."""
        self._uses.last = sequence

    def _synchronized(self) -> np.ndarray[Any, Any]:
        self.use().wait(self._uses.last)
        return array_over(self._core.arena, self.spec, self._offset)

    def __repr__(self) -> str:
        return f"NrtpyTensor({self.name!r}, shape={self.shape}, dtype={self.spec.dtype}, core_id={self.core_id})"


class _Uses:
    """The last command that names the tensor; apart from it, so that the finalizer keeps no reference to it."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = 0


def _release(session: Session, core: Core, offset: int, uses: _Uses) -> None:
    if not session.closed:
        core.free(offset, uses.last)
