"""NEFFs of graphs: compiled once through the cache, loaded once on each core."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch_neuronx.device.runtime import RUNTIME
from torch_neuronx.dynamo import megacache

if TYPE_CHECKING:
    from neuron_runtime.client.model import NrtpyModel
    from torch_neuronx.lowering import Lowered

_loaded: weakref.WeakValueDictionary[tuple[str, int], NrtpyModel] = weakref.WeakValueDictionary()


@dataclass(frozen=True)
class Model:
    """A NEFF and what runs it."""

    neff: bytes
    loaded: NrtpyModel


def load(lowered: Lowered, name: str, device: int) -> Model:
    """The graph's model on that device. Raises CompileFailure, and NrtError when it cannot be loaded."""
    from neuron_runtime.client.model import NrtpyModel
    from torch_neuronx.build import compile_options
    from torch_neuronx.dynamo.cachemetrics import note_build
    from torch_neuronx.eager.models import builder

    session = RUNTIME.session
    options = compile_options(session.target, session.lnc)
    parts = builder().key_parts(lowered, options)
    result = builder().build(lowered, options, label=name)
    note_build(result)
    megacache.record(parts, result)
    model = _loaded.get((parts.key, device))
    if model is None:
        model = _loaded[parts.key, device] = NrtpyModel(session, result.neff, name, device)
    return Model(result.neff, model)
