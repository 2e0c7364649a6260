"""Options of `torch.profiler.profile(..., experimental_config=NeuronConfig(...))` that only this device has."""

from __future__ import annotations

import itertools
import json
import os
import weakref
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

from torch._C._profiler import _ExperimentalConfig

_numbers = itertools.count(1)
_configs: weakref.WeakValueDictionary[int, NeuronConfig] = weakref.WeakValueDictionary()
_NS_PER_US = 1000

Span = tuple[str, str, int, int, int]
"""Name, beginning of the NEFF's key or nothing, device (a host thread as a negative number), begin and end in ns."""


class ProfileMode(Enum):
    """What is recorded. `RUNTIME`: what each NeuronCore executes, and what is compiled for it."""

    RUNTIME = "runtime"


class NeuronConfig(_ExperimentalConfig):
    """`profile_output_dir`: the device's spans are written there too, a Chrome trace a profile.

    `neff_cache_dir`: where this process keeps NEFFs, if it is said before the first operator is compiled. Raises
    ValueError for a mode that does not exist and for a cache that comes too late.
    """

    def __init__(
        self,
        modes: Sequence[ProfileMode] = (ProfileMode.RUNTIME,),
        profile_output_dir: str | os.PathLike[str] | None = None,
        neff_cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self.modes = tuple(ProfileMode(mode) for mode in modes)
        if not self.modes:
            raise ValueError("modes is empty; pass [ProfileMode.RUNTIME], or no experimental_config at all")
        self.profile_output_dir = None if profile_output_dir is None else Path(profile_output_dir)
        number = next(_numbers)
        super().__init__(custom_profiler_config=json.dumps({"backend": "neuron", "config": number}))
        _configs[number] = self
        if neff_cache_dir is not None:
            _use_cache(os.fspath(neff_cache_dir))


def write_spans(custom: str, spans: Sequence[Span]) -> None:
    """What the device's profiler calls at the end of a profile, with the text of its configuration."""
    try:
        parsed = json.loads(custom)
    except json.JSONDecodeError:
        return  # somebody else's
    number = parsed.get("config") if isinstance(parsed, dict) and parsed.get("backend") == "neuron" else None
    config = _configs.get(number) if isinstance(number, int) else None
    if config is None or config.profile_output_dir is None:
        return
    config.profile_output_dir.mkdir(parents=True, exist_ok=True)
    path = config.profile_output_dir / f"neuron_{os.getpid()}_{next(_numbers)}.json"
    path.write_text(json.dumps({"displayTimeUnit": "ms", "traceEvents": [_event(span) for span in spans]}))


def _event(span: Span) -> dict[str, object]:
    name, neff, place, begin, end = span
    on_host = place < 0
    return {
        "ph": "X",
        "cat": "compile" if on_host else "execute",
        "name": name,
        "pid": "host" if on_host else f"neuron:{place}",
        "tid": -place if on_host else 0,
        "ts": begin / _NS_PER_US,
        "dur": (end - begin) / _NS_PER_US,
        "args": {"neff": neff} if neff else {},
    }


def _use_cache(directory: str) -> None:
    from torch_neuronx.eager.models import builder

    if os.environ.get("NEURON_ENV_CACHE_LOCAL_DIR") == directory:
        return
    if builder.cache_info().currsize:
        raise ValueError(
            f"neff_cache_dir={directory!r} comes too late: this process has opened its cache. Make the NeuronConfig "
            "before the first operator runs, or set NEURON_ENV_CACHE_LOCAL_DIR"
        )
    os.environ["NEURON_ENV_CACHE_LOCAL_DIR"] = directory
