"""`torch.compile(..., options=..., mode=...)` as the backend understands it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch_neuronx.dynamo.errors import DynamicShapesError, UnknownOptionError

KNOWN = ("model_name", "fallback_execution", "dynamic", "use_tensorizer_backend")
_TRUE = ("1", "true", "yes")


def enabled(variable: str, default: bool) -> bool:
    """A switch of the backend in the environment: `1`, `true` and `yes` are on, anything else is off."""
    value = os.environ.get(variable)
    return default if value is None else value.lower() in _TRUE


@dataclass(frozen=True)
class BackendOptions:
    """`model_name` names artifacts and metrics. `fallback`: a graph that fails to compile runs operator by operator."""

    model_name: str
    fallback: bool

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> BackendOptions:
        """Raises UnknownOptionError, and DynamicShapesError for `dynamic: True`."""
        options = dict(given or {})
        for name in options:
            if name not in KNOWN:
                raise UnknownOptionError(
                    f"the backend `neuron` has no option `{name}`", hint=f"it knows: {', '.join(KNOWN)}"
                )
        if options.get("dynamic"):
            raise DynamicShapesError(
                "the option `dynamic` is True, but torch-neuronx requires static shapes", hint="leave it out"
            )
        name = options.get("model_name", "model_default")
        if not isinstance(name, str) or not name:
            raise UnknownOptionError(f"the option `model_name` is {name!r}", hint="give a name, such as `gpt2`")
        fallback = options.get("fallback_execution")
        if fallback is None:
            fallback = not enabled("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION", True)
        if not isinstance(fallback, bool):
            raise UnknownOptionError(f"the option `fallback_execution` is {fallback!r}", hint="give True or False")
        return cls(name.lower(), fallback)


def warn_of_mode(mode: str | None) -> None:
    """There is one mode."""
    if mode not in (None, "default"):
        warnings.warn(
            f"Neuron backend does not support mode='{mode}', falling back to default mode.", UserWarning, stacklevel=2
        )
