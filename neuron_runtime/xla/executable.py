"""A compiled program, ready to run on memory of this process."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from neuron_runtime.arrays import numpy_dtype
from neuron_runtime.tensors import TensorSpec
from neuron_runtime.xla.errors import translated
from neuron_runtime.xla.library import Library

if TYPE_CHECKING:
    import numpy as np


class Executable:
    """A program loaded on the CPU client.

    `aliases` holds the (output, input) index pairs that are meant to share memory. `execute` leaves its
    inputs alone; sharing is for the caller to bring about, by copying the output over the input.
    """

    def __init__(
        self,
        lib: Library,
        loaded: Any,
        devices: list[Any],
        inputs: tuple[TensorSpec, ...],
        outputs: tuple[TensorSpec, ...],
        aliases: tuple[tuple[int, int], ...],
        native_bytes: int | None = None,
    ) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self.aliases = aliases
        self._lib = lib
        self._loaded = loaded
        self._devices = devices
        self._sharding = lib.sharding(devices[0])
        self._types: dict[tuple[tuple[int, ...], Any], _ArrayType] = {}
        # With handlers of our own jaxlib needs no type from jax, which it would else try to import on every call.
        self._handlers = [
            lib.jax.array_result_handler(_ArrayType(o.shape, numpy_dtype(o.dtype)), self._sharding, True, True)
            for o in outputs
        ]
        self._native_bytes = native_bytes

    @cached_property
    def _costs(self) -> dict[str, float]:
        costs: dict[str, float] = self._loaded.cost_analysis()
        return costs

    @property
    def flops(self) -> float:
        """Floating-point operations of one execution, by XLA's estimate."""
        return float(self._costs.get("flops", 0.0))

    @property
    def bytes_accessed(self) -> float:
        """Bytes that one execution reads and writes, by XLA's estimate."""
        return float(self._costs.get("bytes accessed", 0.0))

    @cached_property
    def temp_bytes(self) -> int:
        """Scratch memory of one execution, in bytes."""
        return int(self._loaded.get_compiled_memory_stats().temp_size_in_bytes)

    @property
    def code_bytes(self) -> int:
        """Size of the machine code and its tables as they are stored, in bytes."""
        if self._native_bytes is None:
            self._native_bytes = len(self.serialize())
        return self._native_bytes

    def serialize(self) -> bytes:
        """Native code for this CPU, for `Xla.load`. Its bytes differ from one compile to the next."""
        with self._lib.translate("the executable cannot be serialised"):
            return bytes(self._loaded.serialize())

    def alias(self, array: np.ndarray[Any, Any]) -> object:
        """An input handle for `array` (contiguous, of a canonical dtype).

        Reads the array in place where its memory is aligned to 64 bytes, and copies it otherwise. The handle
        keeps the array alive and serves many executions; what is written to the array shows in the next one.
        """
        key = (array.shape, array.dtype)
        kind = self._types.get(key)
        if kind is None:
            kind = self._types[key] = _ArrayType(*key)
        return self._lib.jax.batched_device_put(kind, self._sharding, [array], self._devices)

    def execute(self, inputs: Sequence[object]) -> list[Any]:
        """Run once, to the end, on handles from `alias`; returns output handles for `view`. Raises XlaError.

        XLA checks the number and the byte sizes of the inputs, not shapes and dtypes: the caller has to.
        """
        try:
            results = self._loaded.execute_sharded(inputs)
            outputs: list[Any] = results.consume_with_handlers(self._handlers)
            # Usually done already. But an execution that began before its inputs were copied runs on another
            # thread, and the next ones queue behind it.
            self._lib.jax.batched_block_until_ready(outputs)
        except self._lib.jax.JaxRuntimeError as error:
            raise translated("the execution failed", error) from error
        return outputs

    def bind(self, inputs: Sequence[object], outputs: Sequence[tuple[int, int]]) -> Callable[[], None]:
        """A call that runs once on handles from `alias` and copies each output to an (address, bytes) of this process.

        For executions that are repeated: everything that can be looked up beforehand is. The call raises XlaError.
        The caller answers for the addresses; nothing is checked here.
        """
        run, handlers = self._loaded.execute_sharded, self._handlers
        until_ready, failure = self._lib.jax.batched_block_until_ready, self._lib.jax.JaxRuntimeError
        move, copies = ctypes.memmove, [(at, *where) for at, where in enumerate(outputs) if where[1]]

        def step() -> None:
            try:
                results = run(inputs).consume_with_handlers(handlers)
                until_ready(results)
            except failure as error:
                raise translated("the execution failed", error) from error
            for at, address, nbytes in copies:
                move(address, results[at].unsafe_buffer_pointer(), nbytes)

        return step

    @staticmethod
    def view(output: Any) -> np.ndarray[Any, Any]:
        """The output's memory as a read-only array, without a copy; the array keeps the memory alive."""
        import numpy as np

        dtype = output.aval.dtype
        array: np.ndarray[Any, Any]
        array = np.asarray(output) if dtype.isbuiltin == 1 else np.asarray(_Memory(output)).view(dtype)
        return array


class _ArrayType:
    """What jaxlib asks of an array's type: any object with these attributes."""

    __slots__ = ("dtype", "shape", "weak_type")

    def __init__(self, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape = shape
        self.dtype = dtype
        self.weak_type = False


class _Memory:
    """Tells NumPy where an output of a type of ml_dtypes lies, which the buffer protocol has no name for.

    NumPy holds this for as long as it uses the memory, and this holds the output.
    """

    __slots__ = ("__array_interface__", "_output")

    def __init__(self, output: Any) -> None:
        self._output = output
        self.__array_interface__ = {
            "version": 3,
            "data": (output.unsafe_buffer_pointer(), True),
            "shape": output.aval.shape,
            "typestr": f"|V{output.aval.dtype.itemsize}",
        }
