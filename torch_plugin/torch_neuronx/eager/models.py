"""What this process has one of: the cache, the processes that lower and compile, and each graph loaded on a core."""

from __future__ import annotations

import functools
import hashlib
import weakref
from typing import TYPE_CHECKING

from torch_neuronx import _C
from torch_neuronx.device.runtime import RUNTIME

if TYPE_CHECKING:
    from cache_server import NeffCache
    from neuron_runtime.client.model import NrtpyModel
    from torch_neuronx.build import NeffBuilder, StableHlo
    from torch_neuronx.eager.recipes import Recipes
    from torch_neuronx.worker.worker import LoweringWorker

_loaded: weakref.WeakValueDictionary[tuple[bytes, int], NrtpyModel] = weakref.WeakValueDictionary()


def load(lowered: StableHlo, name: str, device: int) -> NrtpyModel:
    """The graph's model on that device. Raises CompileFailure, and NrtError when it cannot be loaded."""
    from neuron_runtime.client.model import NrtpyModel
    from torch_neuronx.build import compile_options

    key = hashlib.sha256(lowered.stablehlo).digest(), device
    model = _loaded.get(key)
    if model is None:
        session = RUNTIME.session
        result = builder().build(lowered, compile_options(session.target, session.lnc, default_level=1), label=name)
        model = _loaded[key] = NrtpyModel(session, result.neff, name, device)
        _C.name_model(device, model.identity, result.key[:12], result.outcome.value)  # for profiles
    return model


@functools.cache
def builder() -> NeffBuilder:
    """The one of this process: the cache that the environment names, and a compiler that stays warm."""
    from cache_server import NeffCache
    from neuron_runtime.compiler.warm import WarmCompiler
    from torch_neuronx.build import NeffBuilder

    return NeffBuilder(NeffCache.open(), WarmCompiler())


def recipes() -> Recipes:
    """Those for this process's device."""
    from torch_neuronx.eager.recipes import Recipes

    session = RUNTIME.session
    return Recipes(_cache_of_recipes(), lowering_worker(), session.target, session.lnc)


@functools.cache
def _cache_of_recipes() -> NeffCache:
    """The same tiers as the builder's; a cache of its own, so that the builder's statistics count graphs alone."""
    from cache_server import NeffCache

    return NeffCache.open()


@functools.cache
def lowering_worker() -> LoweringWorker:
    """The one of this process."""
    from torch_neuronx.worker.worker import LoweringWorker

    return LoweringWorker()
