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


def _require_static(call: Call) -> None:
    if _VALUE_DEPENDENT & set(call.op.tags) and not _takes_numbered_elements(call):
        raise UnsupportedError("its result's size depends on values")
    random = torch.Tag.nondeterministic_seeded in call.op.tags
    if random and (call.op._schema.name, call.op._schema.overload_name) not in RANDOM:
        raise UnsupportedError("its random numbers have no graph")


def _takes_numbered_elements(call: Call) -> bool:
    """`index` is tagged for its masks; with numbers for indices the result's size is known."""
    indices = [operand.dtype for operand in call.operands if operand.place[0] == 1]
    return call.op._schema.name == "aten::index" and not {torch.bool, torch.uint8} & set(indices)
