"""From a call to its plan. Everything happens once for each signature, on a thread of its own.

That thread is free of what the caller's carries: dispatch modes, autocast, disabled gradients, functorch levels.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from torch_neuronx.eager.call import Call, MixedDevicesError
from torch_neuronx.eager.graph import expected, graph_of
from torch_neuronx.eager.models import load
from torch_neuronx.eager.plan import Plan
from torch_neuronx.eager.policy import UnsupportedError, compile_error, require_fallback
from torch_neuronx.eager.randomness import RANDOM

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_VALUE_DEPENDENT = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}

_BY_MASKS_ONLY = {"aten::index"}  # integers as indices say nothing about the result's size

_FACTORS_OF_ROW_MAJOR = {"aten::_linalg_det", "aten::_linalg_slogdet"}


def make_plan(name: str, overload: str, arguments: Sequence[Any], device: int) -> Plan | None:
    """The plan of this call and all of its signature; None where the host has to run it.

    Raises RuntimeError with the documented text for an operator that fails to compile, or may not fall back.
    """
    return _planner().submit(_make, name, overload, arguments, device).result()


@functools.cache
def _planner() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(1, thread_name_prefix="neuron-plans")


def _make(name: str, overload: str, arguments: Sequence[Any], device: int) -> Plan | None:
    from neuron_runtime.compiler.errors import CompileFailure
    from torch_neuronx.errors import LoweringError
    from torch_neuronx.lowering import lower_graph

    try:
        call = Call(_overload(name, overload), arguments)
        _require_static(call)
        returned = expected(call)
        if all(0 in output.sizes for output in returned.outputs):
            return Plan(0, False, 0, (), (), returned.outputs, returned.results, None)
        graph = graph_of(call, returned)
        lowered = lower_graph(graph.module)
    except UnsupportedError as error:
        require_fallback(name, str(error))
        return None
    except LoweringError as error:
        require_fallback(name, error.message)
        return None
    except MixedDevicesError:
        raise
    except Exception as error:  # noqa: BLE001
        # Either PyTorch cannot trace it, or the arguments are wrong: the host's own kernel knows which.
        require_fallback(name, f"{type(error).__name__}: {error}")
        return None
    try:
        label = ".".join(filter(None, (name.replace("::", "."), overload)))
        model = load(lowered, label, device)
    except CompileFailure as error:
        compile_error(name, error)
        return None
    return Plan(
        model.identity,
        True,
        graph.drawn,
        call.inputs,
        graph.immediates,
        returned.outputs,
        returned.results,
        model,
    )


def _overload(name: str, overload: str) -> torch._ops.OpOverload:
    namespace, _, plain = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), plain)
    found: torch._ops.OpOverload = getattr(packet, overload or "default")
    return found


def _lies_as_written(call: Call) -> bool:
    """Whether a row-major tensor from the beginning of its storage is what strides and offset refer to."""
    named = dict(zip((entry.name for entry in call.schema), call.arguments, strict=True))
    return named.get("storage_offset") is None and bool(named["self"].is_contiguous())


def _require_static(call: Call) -> None:
    tags = _VALUE_DEPENDENT & set(call.op.tags)
    masks = any(operand.dtype in (torch.bool, torch.uint8) for operand in call.operands[1:])
    if tags and (masks or call.op._schema.name not in _BY_MASKS_ONLY):
        raise UnsupportedError("its result's size depends on values")
    if call.op._schema.name.startswith("aten::as_strided") and not _lies_as_written(call):
        raise UnsupportedError("its strides are those of a memory that the graph does not see")
    if call.op._schema.name in _FACTORS_OF_ROW_MAJOR and not call.arguments[0].is_contiguous():
        raise UnsupportedError("gradients use its factors, which depend on how the matrix lies")
    random = torch.Tag.nondeterministic_seeded in call.op.tags
    if random and (call.op._schema.name, call.op._schema.overload_name) not in RANDOM:
        raise UnsupportedError("its random numbers have no graph")
