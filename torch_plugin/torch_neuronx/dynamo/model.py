"""NEFFs of graphs: compiled once through the cache, loaded once on each core."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from torch_neuronx import _C, metrics
from torch_neuronx.device.runtime import RUNTIME
from torch_neuronx.dynamo import megacache

if TYPE_CHECKING:
    from cache_server import CacheResult
    from neuron_runtime.client.model import NrtpyModel
    from torch_neuronx.lowering import Lowered

_loaded: weakref.WeakValueDictionary[tuple[str, int], NrtpyModel] = weakref.WeakValueDictionary()


def load(lowered: Lowered, name: str, device: int, keep: Callable[[bytes], None]) -> NrtpyModel:
    """The graph's model on that device; `keep` gets its NEFF, unless this process has it loaded.

    Raises CompileFailure, and NrtError when it cannot be loaded.
    """
    from neuron_runtime.client.model import NrtpyModel
    from torch_neuronx.build import compile_options
    from torch_neuronx.eager.models import builder

    session = RUNTIME.session
    options = compile_options(session.target, session.lnc)
    parts = builder().key_parts(lowered, options)
    model = _loaded.get((parts.key, device))
    metrics.count("InMemoryMisses" if model is None else "InMemoryHits")
    if model is None:
        result = builder().build(lowered, options, label=name)
        _count(result)
        megacache.record(parts, result)
        keep(result.neff)
        model = _loaded[parts.key, device] = NrtpyModel(session, result.neff, name, device)
        _C.name_model(device, model.identity, result.key[:12], result.outcome.value)  # for profiles
    return model


def _count(result: CacheResult) -> None:
    from cache_server.result import Outcome

    held = metrics.metrics()["CompilationCache.MemoryUsage"]
    metrics.add("NeffSize", len(result.neff))
    metrics.add("MemoryUsage", (held[-1] if held else 0) + len(result.neff))
    if result.outcome in (Outcome.LOCAL_HIT, Outcome.SHARED_HIT):
        metrics.count("PersistentHits")
    else:
        metrics.count("PersistentMisses")
        metrics.count("TotalCompilations")
        metrics.add("CompilationTime", result.compile_seconds)
