"""What `torch.compile` calls with each graph of Dynamo's."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from torch_neuronx.dynamo.compiler import GraphCompiler
from torch_neuronx.dynamo.errors import NEFFCompilationError
from torch_neuronx.dynamo.foreach import foreach_decompositions
from torch_neuronx.dynamo.metrics import note_fallback
from torch_neuronx.dynamo.options import BackendOptions, warn_of_mode
from torch_neuronx.dynamo.partition import partition
from torch_neuronx.dynamo.randomness import random_decompositions
from torch_neuronx.dynamo.shapes import make_static

log = logging.getLogger("torch_neuronx")


def neuron_backend(
    module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """The graph as a callable of its inputs, differentiable where they are; where `options` allow a fallback and it
    does not compile, as it is.

    Raises UnknownOptionError, DynamicShapesError, NEFFCompilationError.
    """
    from torch._dynamo.backends.common import aot_autograd

    chosen = BackendOptions.of(options)
    warn_of_mode(mode)
    static, inputs, kept = make_static(module, example_inputs)
    compiler = GraphCompiler(chosen)
    try:
        compiled = aot_autograd(
            fw_compiler=functools.partial(compiler.compile, direction="forward"),
            bw_compiler=functools.partial(compiler.compile, direction="backward"),
            inference_compiler=functools.partial(compiler.compile, direction="inference"),
            partition_fn=partition,
            decompositions=_decompositions(),
            keep_inference_input_mutations=True,
        )(static, inputs)
    except NEFFCompilationError as error:
        if not chosen.fallback:
            raise
        log.warning("a graph of `%s` runs operator by operator: %s", chosen.model_name, error)
        note_fallback(chosen.model_name, "operator by operator", str(error))
        return module.forward
    if len(kept) == len(example_inputs):
        return compiled  # type: ignore[no-any-return]
    return lambda *arguments: compiled(*(arguments[number] for number in kept))


@functools.cache
def _decompositions() -> dict[Any, Callable[..., Any]]:
    from torch_neuronx.decompositions import decompositions
    from torch_neuronx.dynamo.attention import attention_decompositions
    from torch_neuronx.eager.decompositions import eager_decompositions

    return {
        **decompositions(),
        **eager_decompositions(),
        **attention_decompositions(),
        **foreach_decompositions(),
        **random_decompositions(),
    }
