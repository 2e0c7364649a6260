"""A graph of AOTAutograd's becomes a callable that runs on the device."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

from neuron_runtime.errors import NeuronEnvError
from torch_neuronx.dynamo.artifacts import Artifacts
from torch_neuronx.dynamo.boundary import Boundary
from torch_neuronx.dynamo.cut import cut
from torch_neuronx.dynamo.errors import NEFFCompilationError, NEFFExecutionError
from torch_neuronx.dynamo.executable import Executable
from torch_neuronx.dynamo.layouts import lay_out
from torch_neuronx.dynamo.metrics import NeuronCompilationMetrics, note, note_fallback
from torch_neuronx.dynamo.model import load
from torch_neuronx.dynamo.narrowing import narrow
from torch_neuronx.dynamo.onhost import OnHost
from torch_neuronx.dynamo.options import BackendOptions
from torch_neuronx.lowering import Lowered

if TYPE_CHECKING:
    from neuron_runtime.client.model import NrtpyModel

log = logging.getLogger("torch_neuronx")

_graphs = itertools.count()


class GraphCompiler:
    """For the forward and the backward of one graph of Dynamo's."""

    def __init__(self, options: BackendOptions) -> None:
        self._options = options

    def compile(
        self, module: torch.fx.GraphModule, example_inputs: Sequence[Any], *, direction: str
    ) -> Callable[[list[Any]], Any]:
        """`direction`: `forward`, `backward` or `inference`. Raises NEFFCompilationError, NEFFExecutionError.

        Where the options allow a fallback, a backward graph that fails runs on the host: its forward has run on the
        device by then, and its random numbers are arithmetic that eager mode would do in 32 bits.
        """
        number = next(_graphs)
        try:
            return self._compiled(module, number, direction)
        except NEFFCompilationError as error:
            if direction != "backward" or not self._options.fallback:
                raise
            log.warning("the backward graph of `%s` runs on the host: %s", self._options.model_name, error)
            note_fallback(self._options.model_name, "backward on the host", str(error))
            return OnHost(module)

    def _compiled(self, module: torch.fx.GraphModule, number: int, direction: str) -> Callable[[list[Any]], Any]:
        from torch.utils._python_dispatch import _disable_current_modes

        device = _device_of(module)
        name = f"{self._options.model_name}_{direction}"
        artifacts = Artifacts(self._options.model_name)
        # Autograd wants each gradient beside its tensor; and a program on the device that says `cpu` means it.
        retain = direction == "backward" or _starts_on_device(module)
        started = time.perf_counter()
        with _disable_current_modes(), torch.no_grad():
            artifacts.graph("fx_graphs", module)
            boundary = _prepared(module)
            if boundary.module is None:
                return Executable(boundary, None, name, device, retain=retain)
            artifacts.graph("transformed_fx", boundary.module)
            passed = time.perf_counter()
            lowered = _lowered(boundary, artifacts)
            artifacts.text("stablehlo", lowered.text)
            done = time.perf_counter()
            model = _built(lowered, name, device, artifacts)
            compiled = time.perf_counter()
        note(
            NeuronCompilationMetrics(
                graph_id=number,
                graph_name=name,
                model_name=self._options.model_name,
                has_collectives=False,
                graph_node_count=len(module.graph.nodes),
                timestamp=time.time(),
                torch_neuronx_fx_passes_us=_micros(passed - started),
                torch_neuronx_lower_us=_micros(done - passed),
                torch_neuronx_compile_us=_micros(compiled - done),
            )
        )
        return Executable(boundary, model, name, device, retain=retain)


def lower(module: torch.fx.GraphModule) -> Lowered:
    """The one place where compiled graphs become StableHLO."""
    from torch_neuronx.lowering import lower_graph

    return lower_graph(module)


def _prepared(module: torch.fx.GraphModule) -> Boundary:
    boundary = lay_out(cut(module))
    if boundary.module is None:
        return boundary
    return dataclasses.replace(boundary, module=narrow(boundary.module))


def _lowered(boundary: Boundary, artifacts: Artifacts) -> Lowered:
    assert boundary.module is not None
    try:
        return lower(boundary.module)
    except NeuronEnvError as error:
        artifacts.binary("torch_mlir_error", error.message.encode())
        raise NEFFCompilationError(error.message, hint=error.hint) from error


def _built(lowered: Lowered, name: str, device: int, artifacts: Artifacts) -> NrtpyModel:
    from neuron_runtime.compiler.errors import CompileFailure
    from neuron_runtime.status import NrtError

    try:
        return load(lowered, name, device, functools.partial(artifacts.binary, "neff"))
    except CompileFailure as error:
        raise NEFFCompilationError(f"COMPILATION FAILED: {error}") from error
    except NrtError as error:
        raise NEFFExecutionError(
            f"Neuron backend NEFF execution setup failed with unexpected error: {error}", hint=error.hint
        ) from error


def _device_of(module: torch.fx.GraphModule) -> int:
    """That of the first tensor on a device; the current one for a program on the host."""
    for node in module.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.device.type == "neuron" and value.device.index is not None:
            return value.device.index
    return int(torch.neuron.current_device())  # type: ignore[attr-defined]


def _starts_on_device(module: torch.fx.GraphModule) -> bool:
    values = (node.meta.get("val") for node in module.graph.find_nodes(op="placeholder"))
    return any(isinstance(value, torch.Tensor) and value.device.type == "neuron" for value in values)


def _micros(seconds: float) -> int:
    return round(seconds * 1e6)
