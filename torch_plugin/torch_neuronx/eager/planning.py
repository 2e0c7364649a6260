"""From a call to its plan. Everything happens once for each signature, on a thread of its own.

That thread is free of what the caller's carries: dispatch modes, autocast, disabled gradients, functorch levels.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from neuron_runtime.compiler.errors import CompileFailure
from torch_neuronx.eager.arguments import described
from torch_neuronx.eager.models import load, lowering_worker, recipes
from torch_neuronx.eager.plan import Plan
from torch_neuronx.eager.policy import UnsupportedError, compile_error, log, require_fallback
from torch_neuronx.eager.randomness import RANDOM
from torch_neuronx.eager.recipe import OnHost, Recipe, fits
from torch_neuronx.eager.recipes import overload

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from neuron_runtime.client.model import NrtpyModel

_VALUE_DEPENDENT = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}


def make_plan(name: str, overload_name: str, arguments: Sequence[Any], device: int) -> Plan | None:
    """The plan of this call and all of its signature; None where the host has to run it.

    Raises RuntimeError with the documented text for an operator that fails to compile, or may not fall back.
    """
    making = _planner().submit(_make, name, overload_name, arguments, device)
    try:
        return making.result()
    except KeyboardInterrupt:
        # Else the process could not end before its thread does.
        lowering_worker().interrupt()
        raise


@functools.cache
def _planner() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(1, thread_name_prefix="neuron-plans")


def _make(name: str, overload_name: str, arguments: Sequence[Any], device: int) -> Plan | None:
    op = overload(name, overload_name)
    label = ".".join(filter(None, (name.replace("::", "."), overload_name)))
    try:
        call = described(op, arguments)
        _require_static(op)
    except UnsupportedError as error:
        require_fallback(name, str(error))
        return None
    try:
        recipe = recipes().get(op, call, label=label)
        model = _loaded(name, label, recipe, device)
        if isinstance(recipe, Recipe) and model is not None and not fits(recipe, call, model.manifest):
            log.warning("what the cache has of %s does not fit its graph", label)
            recipe = recipes().get(op, call, label=label, anew=True)
            model = _loaded(name, label, recipe, device)
    except _NoPlanError:
        return None
    except CompileFailure as failure:
        require_fallback(name, failure.message if failure.hint is None else f"{failure.message} ({failure.hint})")
        return None
    if isinstance(recipe, OnHost):
        require_fallback(name, recipe.reason)
        return None
    return Plan(
        model.identity if model is not None else 0,
        model is not None,
        recipe.random_numbers,
        recipe.inputs,
        recipe.immediates,
        recipe.outputs,
        recipe.results,
        model,
    )


class _NoPlanError(Exception):
    """The compile failed, and the host may run the operator."""


def _loaded(name: str, label: str, recipe: Recipe | OnHost, device: int) -> NrtpyModel | None:
    """The model of a recipe that computes something."""
    if isinstance(recipe, OnHost) or not recipe.stablehlo:
        return None
    try:
        return load(recipe, label, device)
    except CompileFailure as failure:
        compile_error(name, failure)
        raise _NoPlanError from failure


def _require_static(op: torch._ops.OpOverload) -> None:
    # Whether integers or masks are its indices is seen where it is lowered.
    if _VALUE_DEPENDENT & set(op.tags) and op._schema.name != "aten::index":
        raise UnsupportedError("its result's size depends on values")
    random = torch.Tag.nondeterministic_seeded in op.tags
    if random and (op._schema.name, op._schema.overload_name) not in RANDOM:
        raise UnsupportedError("its random numbers have no graph")
