"""From the description of a call to its recipe. Runs in the worker: torch-mlir may take its process down."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torch_neuronx.eager.arguments import Argument
from torch_neuronx.eager.call import Call
from torch_neuronx.eager.graph import expected, graph_of
from torch_neuronx.eager.policy import UnsupportedError
from torch_neuronx.eager.recipe import OnHost, Recipe
from torch_neuronx.errors import LoweringError

_FACTORS_OF_ROW_MAJOR = {"aten::_linalg_det", "aten::_linalg_slogdet"}


def lower_call(op: torch._ops.OpOverload, arguments: Sequence[Argument]) -> Recipe | OnHost:
    """What to do for a call of this form."""
    from torch_neuronx.lowering import lower_graph

    try:
        call = Call(op, arguments)
        _require_a_graph(call)
        returned = expected(call)
        if all(0 in output.sizes for output in returned.outputs):
            return Recipe(b"", 0, (), (), returned.outputs, returned.results)
        graph = graph_of(call, returned)
        stablehlo = lower_graph(graph.module).stablehlo
    except MemoryError:
        raise
    except UnsupportedError as error:
        return OnHost(str(error))
    except LoweringError as error:
        return OnHost(error.message, lasting=not _starved(error))
    except Exception as error:  # noqa: BLE001
        # Either PyTorch cannot trace it, or the arguments are wrong: the host's own kernel knows which.
        return OnHost(f"{type(error).__name__}: {error}", lasting=False)
    return Recipe(stablehlo, graph.drawn, call.inputs, graph.immediates, returned.outputs, returned.results)


def _require_a_graph(call: Call) -> None:
    name = call.op._schema.name
    if name == "aten::index" and any(operand.dtype in (torch.bool, torch.uint8) for operand in call.operands[1:]):
        raise UnsupportedError("its result's size depends on values")
    named = dict(zip((entry.name for entry in call.schema), call.arguments, strict=True))
    if name.startswith("aten::as_strided") and not (named.get("storage_offset") is None and named["self"].contiguous):
        raise UnsupportedError("its strides are those of a memory that the graph does not see")
    if name in _FACTORS_OF_ROW_MAJOR and not call.arguments[0].contiguous:
        raise UnsupportedError("gradients use its factors, which depend on how the matrix lies")


def _starved(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__
    return False
