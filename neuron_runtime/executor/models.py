"""A NEFF loaded on one NeuronCore: its executable, where its tensors lie, and how often it ran."""

from __future__ import annotations

import mmap
import struct
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from neuron_runtime.arrays import array_over
from neuron_runtime.device.hbm import ALIGNMENT
from neuron_runtime.neff import NeffError, read_neff
from neuron_runtime.status import NrtError, NrtStatus
from neuron_runtime.tensors import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from neuron_runtime.neff import Neff, NeffManifest
    from neuron_runtime.xla import Executable, Xla

_ARCHITECTURES = ("trn1", "trn2", "trn3")
_PLANS_KEPT = 64
_HANDLES_KEPT = 256
_LATENCIES_KEPT = 1024


@dataclass(frozen=True, slots=True)
class LoadPolicy:
    """What this executor may load: the machine's target and LNC, and whether native code may run."""

    target: str
    lnc: int
    native: bool
    allow_legacy: bool


class Immediates:
    """The inputs that commands carry themselves: scalars in memory of their own, read in place."""

    def __init__(self, specs: Sequence[TensorSpec], executable: Executable) -> None:
        self._words = mmap.mmap(-1, max(1, len(specs)) * ALIGNMENT)
        self._at = [number * ALIGNMENT for number in range(len(specs))]
        self.handles = [
            executable.alias(array_over(self._words, spec, at)) for spec, at in zip(specs, self._at, strict=True)
        ]

    def set(self, words: tuple[int, ...]) -> None:
        """A word's low bytes are the scalar's."""
        for at, word in zip(self._at, words, strict=True):
            struct.pack_into("=Q", self._words, at, word)


@dataclass(slots=True)
class LoadedModel:
    """Executions of one NEFF on one core; times in nanoseconds."""

    identity: int
    name: str
    uuid: str
    core: int
    manifest: NeffManifest
    executable: Executable
    arena: mmap.mmap
    native: bool
    load_seconds: float
    executions: int = 0
    errors: int = 0
    total_ns: int = 0
    recent_ns: deque[int] = field(default_factory=lambda: deque(maxlen=_LATENCIES_KEPT))
    # By the count of numbers and the addresses: of two callers one may have in memory what the other sends along.
    _plans: dict[tuple[int, ...], Callable[[], None]] = field(default_factory=dict)
    # Tensors at addresses seen before: allocators hand out the same few again and again, in ever new combinations.
    _inputs: dict[tuple[int, int], object] = field(default_factory=dict)
    _immediates: dict[int, Immediates] = field(default_factory=dict)

    @property
    def code_bytes(self) -> int:
        return self.executable.code_bytes

    @property
    def scratch_bytes(self) -> int:
        return self.executable.temp_bytes

    def run(self, inputs: int, operands: tuple[int, ...]) -> None:
        """Executes as a command of kind EXECUTE says: input and output addresses, then immediates.

        Raises NrtError: NRT_EXEC_BAD_INPUT for a wrong count, NRT_EXEC_OOB for an address outside the arena.
        """
        immediates = inputs >> 32
        if immediates:
            inputs &= 0xFFFF_FFFF
            self._set_immediates(inputs, operands[-immediates:])
            operands = operands[:-immediates]
        step = self._plans.get((immediates, *operands))
        if step is None:
            step = self._bind(inputs, immediates, operands)
        step()

    @property
    def flops(self) -> int:
        return self.manifest.flops

    def record(self, ns: int) -> None:
        self.executions += 1
        self.total_ns += ns
        self.recent_ns.append(ns)

    def statistics(self) -> dict[str, Any]:
        return {
            "model_id": self.identity,
            "name": self.name,
            "uuid": self.uuid,
            "core": self.core,
            "native": self.native,
            "load_seconds": round(self.load_seconds, 6),
            "executions": self.executions,
            "errors": self.errors,
            "total_seconds": self.total_ns / 1e9,
            "flops": self.manifest.flops,
            "code_bytes": self.code_bytes,
            "scratch_bytes": self.scratch_bytes,
        }

    def _set_immediates(self, inputs: int, words: tuple[int, ...]) -> None:
        numbers = self._immediates.get(len(words))
        if numbers is None:
            specs = self.manifest.inputs[inputs:]
            if len(specs) != len(words) or any(spec.shape for spec in specs):
                raise self._wrong_count(inputs, len(words))
            numbers = self._immediates[len(words)] = Immediates(specs, self.executable)
        numbers.set(words)

    def _bind(self, inputs: int, numbers: int, operands: tuple[int, ...]) -> Callable[[], None]:
        immediates = self._immediates[numbers].handles if numbers else []
        tensors = self.manifest.inputs[: len(self.manifest.inputs) - numbers]
        outputs = self.manifest.outputs
        if inputs != len(tensors) or len(operands) != len(tensors) + len(outputs):
            raise self._wrong_count(inputs, numbers)
        handles = [self._handle(at, spec, operands[at]) for at, spec in enumerate(tensors)]
        results = [self._array(spec, offset) for spec, offset in zip(outputs, operands[inputs:], strict=True)]
        step = self.executable.bind([*handles, *immediates], [(array.ctypes.data, array.nbytes) for array in results])
        if len(self._plans) >= _PLANS_KEPT:
            self._plans.pop(next(iter(self._plans)))
        self._plans[numbers, *operands] = step
        return step

    def _handle(self, at: int, spec: TensorSpec, offset: int) -> object:
        handle = self._inputs.get((at, offset))
        if handle is None:
            handle = self.executable.alias(self._array(spec, offset))
            if len(self._inputs) >= _HANDLES_KEPT:
                self._inputs.pop(next(iter(self._inputs)))
            self._inputs[at, offset] = handle
        return handle

    def _wrong_count(self, inputs: int, immediates: int) -> NrtError:
        return NrtError(
            NrtStatus.EXEC_BAD_INPUT,
            f"`{self.name}` takes {len(self.manifest.inputs)} inputs and {len(self.manifest.outputs)} outputs, "
            f"not {inputs} tensors and {immediates} numbers",
        )

    def _array(self, spec: TensorSpec, offset: int) -> Any:
        if offset % ALIGNMENT or offset + spec.nbytes > len(self.arena):
            raise NrtError(
                NrtStatus.EXEC_OOB,
                f"tensor `{spec.name}` of `{self.name}` at HBM offset {offset:#x} ({spec.nbytes} bytes) "
                "is misaligned or outside the core's memory",
            )
        return array_over(self.arena, spec, offset)


def load_model(
    data: bytes, *, identity: int, name: str, core: int, arena: mmap.mmap, xla: Xla, policy: LoadPolicy
) -> LoadedModel:
    """Verifies and loads a NEFF. Raises NrtError with the code that fits, or lets XlaError through."""
    start = time.perf_counter()
    try:
        neff = read_neff(data)
        manifest = neff.manifest
    except NeffError as error:
        raise NrtError(NrtStatus.INVALID, f"`{name}` is not a valid NEFF: {error}") from error
    if manifest is None:
        raise NrtError(
            NrtStatus.UNSUPPORTED_NEFF_VERSION,
            f"`{name}` was compiled for hardware; the simulated device runs NEFFs of the simulated compiler only",
            hint="compile the graph with `neuron-env compile` or `neuronx-cc-sim compile`",
        )
    _check_target(manifest, name, policy)
    executable, native = _executable(neff, manifest, xla, policy)
    return LoadedModel(
        identity=identity,
        name=name,
        uuid=neff.header.uuid.hex(),
        core=core,
        manifest=manifest,
        executable=executable,
        arena=arena,
        native=native,
        load_seconds=time.perf_counter() - start,
    )


def _check_target(manifest: NeffManifest, name: str, policy: LoadPolicy) -> None:
    if manifest.lnc != policy.lnc:
        raise NrtError(
            NrtStatus.INVALID,
            f"`{name}` was compiled for LNC {manifest.lnc}, the runtime runs LNC {policy.lnc}",
            hint=f"compile with `--lnc {policy.lnc}`, or start the runtime with "
            f"`NEURON_LOGICAL_NC_CONFIG={manifest.lnc}`",
        )
    if manifest.target == policy.target:
        return
    known = manifest.target in _ARCHITECTURES and policy.target in _ARCHITECTURES
    older = known and _ARCHITECTURES.index(manifest.target) < _ARCHITECTURES.index(policy.target)
    if not (older and policy.allow_legacy):
        raise NrtError(
            NrtStatus.UNSUPPORTED_NEFF_VERSION,
            f"`{name}` was compiled for {manifest.target}, this instance is {policy.target}",
            hint=f"compile with `--target {policy.target}`"
            + (", or set `NEURON_RT_ALLOW_LEGACY_NEFF=1`" if older else ""),
        )


def _executable(neff: Neff, manifest: NeffManifest, xla: Xla, policy: LoadPolicy) -> tuple[Executable, bool]:
    """The native part where it may run and does load; else compiled from the StableHLO."""
    from neuron_runtime.cpu import CpuIdentity
    from neuron_runtime.xla import XlaError

    native = manifest.native
    if policy.native and native is not None:
        built_for = CpuIdentity(native.arch, native.cpu_features)
        code = neff.native if xla.accepts(native.format, built_for) else None
        try:
            if code is not None:
                return xla.load(code, manifest.inputs, manifest.outputs), True
        except XlaError:
            # The StableHLO is the reference; a native part that does not load costs a compile, no failure.
            pass
    return xla.compile(neff.stablehlo, manifest.opt_level), False


def percentiles(samples_ns: Sequence[int]) -> dict[str, float] | None:
    """p0 to p100 in seconds, as neuron-monitor reports latencies; None without samples."""
    if not samples_ns:
        return None
    ordered = sorted(samples_ns)
    last = len(ordered) - 1
    return {f"p{p}": ordered[round(last * p / 100)] / 1e9 for p in (0, 1, 25, 50, 75, 99, 100)}
