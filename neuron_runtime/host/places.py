"""Where the caches are that a Neuron program would use: by variable, by flag, by default."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple


class CachePlace(NamedTuple):
    """Where a cache is: a directory, a URL or `none`. `setting` is what says so, None for a default."""

    name: str
    place: str
    setting: str | None


def cache_places(environ: Mapping[str, str]) -> list[CachePlace]:
    """Each cache of the vendor's and of ours, in the order in which a program meets them."""
    return list(_places(environ))


def _places(environ: Mapping[str, str]) -> Iterator[CachePlace]:
    for name, variables, default in _CACHES:
        setting = next((variable for variable in variables if environ.get(variable)), None)
        place = environ[setting] if setting else default
        if name == "neuron-env shared" and setting == _VENDORS_URL and _remote(place):
            # Of the vendor's variable we take a directory only.
            setting, place = None, default
        if name == "libneuronxla" and (found := re.search(r"--cache_dir[= ](\S+)", environ.get("NEURON_CC_FLAGS", ""))):
            setting, place = "NEURON_CC_FLAGS", found[1].strip("'\"")
        if place:
            yield CachePlace(name, _expanded(place, environ), setting)


def _remote(place: str) -> bool:
    return "://" in place and not place.startswith("file://")


def _expanded(place: str, environ: Mapping[str, str]) -> str:
    home, cache_home = environ.get("HOME", "/root"), environ.get("XDG_CACHE_HOME", "")
    if not cache_home.startswith("/"):
        cache_home = f"{home}/.cache"
    if place.startswith("~/"):
        return home + place[1:]
    return "none" if place.lower() == "none" else place.replace("$CACHE_HOME", cache_home)


_VENDORS_URL = "NEURON_COMPILE_CACHE_URL"

# Name, the variables that place it, the default. Without a default it is there only where a variable says so, since
# the vendor's own default is not known.
_CACHES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("neuron-env shared", ("NEURON_ENV_CACHE_URL", _VENDORS_URL), "$CACHE_HOME/neuron-env/shared"),
    (
        "neuron-env local",
        ("NEURON_ENV_CACHE_LOCAL_DIR", "TORCH_NEURONX_NEFF_CACHE_DIR"),
        "$CACHE_HOME/neuron-env/local",
    ),
    ("TorchNeuron NEFF", ("TORCH_NEURONX_NEFF_CACHE_DIR",), "/tmp/neff_cache"),  # noqa: S108
    ("TorchNeuron locks", ("TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR",), "/tmp/local_cache"),  # noqa: S108
    ("TorchNeuron HLO", ("TORCH_NEURONX_HLO_CACHE_DIR",), ""),
    ("TorchNeuron debug", ("TORCH_NEURONX_DEBUG_DIR",), "/tmp/neuron_backend"),  # noqa: S108
    ("NKI trace", ("NKI_TRACE_CACHE_URL",), ""),
    ("NKI compile", ("NKI_COMPILE_CACHE_URL",), ""),
    ("TorchInductor", ("TORCHINDUCTOR_CACHE_DIR",), ""),
    ("libneuronxla", (_VENDORS_URL,), "/var/tmp/neuron-compile-cache"),  # noqa: S108
)
