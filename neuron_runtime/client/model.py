"""A NEFF loaded on a NeuronCore."""

from __future__ import annotations

import os
import statistics
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuron_runtime.client.runtime import current_runtime
from neuron_runtime.client.tensor import NrtpyTensor
from neuron_runtime.neff import NeffError, NeffManifest, read_neff
from neuron_runtime.protocol.queue import CommandKind
from neuron_runtime.status import NrtError, NrtpyError, NrtStatus
from neuron_runtime.tensors import TensorSpec

if TYPE_CHECKING:
    from neuron_runtime.client.session import Session


@dataclass(frozen=True, slots=True)
class TensorMetadata:
    """`size` in bytes."""

    shape: tuple[int, ...]
    size: int
    dtype: str


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """Times of a benchmark run, in milliseconds."""

    mean_ms: float
    min_ms: float
    max_ms: float
    std_dev_ms: float
    iterations: int
    warmup_iterations: int
    durations_ms: list[float]


class NrtpyModel:
    """Call it with tensors; it runs asynchronously, in the order of its core's queue."""

    def __init__(self, session: Session, neff: bytes, name: str, core_id: int = 0) -> None:
        """Loads the NEFF on a core. Raises NrtError: NRT_INVALID for a bad file, NRT_UNSUPPORTED_NEFF_VERSION
        for one of other hardware, NRT_RESOURCE when the core's HBM is full."""
        self.manifest = _manifest(neff, name)
        self.name = name
        self.core_id = core_id
        self._session = session
        self._core = session.core(core_id)
        session.collect()
        reply = _send_neff(session, neff, {"verb": "load", "core": core_id, "name": name})
        self.identity: int = reply["model"]
        self.native: bool = reply["native"]
        """Whether the NEFF's native code runs; otherwise the executor compiled its StableHLO."""
        self.load_seconds: float = reply["seconds"]
        nbytes = int(reply["code_bytes"]) + int(reply["scratch_bytes"])
        self._inputs = {spec.name: spec for spec in self.manifest.inputs}
        self._outputs = {spec.name: spec for spec in self.manifest.outputs}
        try:
            self._core.reserve_model(nbytes)
        except NrtError:
            session.request({"verb": "unload", "core": core_id, "model": self.identity})
            raise
        self._release = weakref.finalize(self, session.retire, core_id, self.identity, nbytes)
        self._release.atexit = False

    @classmethod
    def load_from_neff(cls, neff_path: str | os.PathLike[str], name: str | None = None, core_id: int = 0) -> NrtpyModel:
        """Loads a file; the name defaults to its stem. Raises NrtError(NRT_FAILURE) when it cannot be read."""
        path = Path(neff_path)
        try:
            neff = path.read_bytes()
        except OSError as error:
            raise NrtError(NrtStatus.FAILURE, f"cannot read {path}: {error.strerror}") from error
        return cls.load_from_bytes(neff, name or path.stem, core_id)

    @classmethod
    def load_from_bytes(cls, neff: bytes, name: str, core_id: int = 0) -> NrtpyModel:
        """Loads a NEFF held in memory, such as one the cache returned."""
        return cls(current_runtime(), neff, name, core_id)

    @property
    def input_tensors_info(self) -> dict[str, TensorMetadata]:
        return {s.name: TensorMetadata(s.shape, s.nbytes, s.dtype) for s in self.manifest.inputs}

    @property
    def output_tensors_info(self) -> dict[str, TensorMetadata]:
        return {s.name: TensorMetadata(s.shape, s.nbytes, s.dtype) for s in self.manifest.outputs}

    def __call__(
        self, inputs: Mapping[str, NrtpyTensor], outputs: Mapping[str, NrtpyTensor] | None = None
    ) -> dict[str, NrtpyTensor] | None:
        """Queues one execution. Outputs are allocated and returned when None is given.

        Raises NrtError(NRT_EXEC_BAD_INPUT) when names, shapes, dtypes or cores do not match the NEFF.
        """
        ordered = self._ordered(inputs, self._inputs, "input")
        if outputs is not None:
            self.execute(ordered, self._ordered(outputs, self._outputs, "output"))
            return None
        made = self.allocate_outputs()
        self.execute(ordered, list(made.values()))
        return made

    def execute(self, inputs: Sequence[NrtpyTensor], outputs: Sequence[NrtpyTensor]) -> int:
        """Queues one execution with tensors in the NEFF's order, unchecked but for liveness; its sequence number."""
        if not self._release.alive:
            raise NrtpyError(f"model `{self.name}` has been unloaded")
        self._session.check()
        tensors = [*inputs, *outputs]
        operands = [tensor.address() for tensor in tensors]
        sequence = self._core.submit(CommandKind.EXECUTE, self.identity, len(inputs), operands)
        for tensor in tensors:
            tensor.used(sequence)
        return sequence

    def allocate_outputs(self) -> dict[str, NrtpyTensor]:
        """A new tensor for each output."""
        return {s.name: NrtpyTensor(self._session, self.core_id, s) for s in self.manifest.outputs}

    def benchmark(
        self,
        inputs: Mapping[str, NrtpyTensor],
        outputs: Mapping[str, NrtpyTensor] | None = None,
        warmup_iter: int = 5,
        benchmark_iter: int = 5,
        mode: str = "host",
    ) -> BenchmarkResult:
        """Times synchronous executions on the host's clock.

        Raises ValueError for `mode="device"`: a simulated core has no clock of its own.
        """
        if mode != "host":
            raise ValueError(f"mode {mode!r} is not available on the simulated device; use mode='host'")
        if benchmark_iter < 1:
            raise ValueError("benchmark_iter must be at least 1")
        made = dict(outputs) if outputs is not None else self.allocate_outputs()
        durations: list[float] = []
        for iteration in range(warmup_iter + benchmark_iter):
            start = time.perf_counter()
            self(inputs, made)
            self._core.synchronize()
            if iteration >= warmup_iter:
                durations.append((time.perf_counter() - start) * 1e3)
        deviation = statistics.stdev(durations) if len(durations) > 1 else 0.0
        return BenchmarkResult(
            statistics.fmean(durations),
            min(durations),
            max(durations),
            deviation,
            benchmark_iter,
            warmup_iter,
            durations,
        )

    def unload(self) -> None:
        """Gives the model's memory back once its queued executions have ended."""
        self._release()
        self._session.collect()

    def _ordered(
        self, given: Mapping[str, NrtpyTensor], wanted: Mapping[str, TensorSpec], kind: str
    ) -> list[NrtpyTensor]:
        if given.keys() != wanted.keys():
            missing, extra = sorted(wanted.keys() - given.keys()), sorted(given.keys() - wanted.keys())
            parts = [f"missing {missing}"] * bool(missing) + [f"unknown {extra}"] * bool(extra)
            raise NrtError(NrtStatus.EXEC_BAD_INPUT, f"{kind}s of `{self.name}` do not match: {', '.join(parts)}")
        for name, tensor in given.items():
            spec = wanted[name]
            if tensor.shape != spec.shape or tensor.spec.dtype != spec.dtype:
                raise NrtError(
                    NrtStatus.EXEC_BAD_INPUT,
                    f"{kind} `{name}` of `{self.name}` must be {spec.dtype}{list(spec.shape)}, "
                    f"not {tensor.spec.dtype}{list(tensor.shape)}",
                )
            if tensor.core_id != self.core_id:
                raise NrtError(
                    NrtStatus.EXEC_BAD_INPUT,
                    f"{kind} `{name}` lies on core {tensor.core_id}, `{self.name}` runs on core {self.core_id}",
                )
        return [given[name] for name in wanted]


def _manifest(neff: bytes, name: str) -> NeffManifest:
    try:
        manifest = read_neff(neff).manifest
    except NeffError as error:
        raise NrtError(NrtStatus.INVALID, f"`{name}` is not a valid NEFF: {error}", hint=error.hint) from error
    if manifest is None:
        raise NrtError(
            NrtStatus.UNSUPPORTED_NEFF_VERSION,
            f"`{name}` was compiled for hardware; the simulated device runs NEFFs of the simulated compiler only",
            hint="compile the graph with `neuron-env compile` or `neuronx-cc-sim compile`",
        )
    return manifest


def _send_neff(session: Session, neff: bytes, request: dict[str, object]) -> dict[str, Any]:
    """The NEFF travels as a memfd: a datagram has no room for it."""
    fd = os.memfd_create("neff", os.MFD_CLOEXEC)
    try:
        view = memoryview(neff)
        while view:
            view = view[os.write(fd, view) :]
        return session.request(request, (fd,))
    finally:
        os.close(fd)
