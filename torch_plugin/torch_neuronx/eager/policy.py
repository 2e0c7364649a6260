"""What happens to an operator that cannot run on the device: the documented switches and texts."""

from __future__ import annotations

import logging
import os
from typing import NoReturn

log = logging.getLogger("torch_neuronx")

_TRUE = ("1", "true", "yes")
_warned: set[str] = set()


class UnsupportedError(Exception):
    """The operator has no form that compiles; the host has to run it."""


def fell_back(operation: str) -> None:
    """Says once that an operator ran on the host."""
    if operation not in _warned:
        _warned.add(operation)
        log.warning("Operator '%s' executed via CPU fallback", operation)


def require_fallback(operation: str, reason: str) -> None:
    """Raises RuntimeError where `NEURON_FALLBACK_ENABLED=0` forbids to run on the host."""
    value = os.environ.get("NEURON_FALLBACK_ENABLED")
    if value is not None and value.lower() not in _TRUE:
        raise RuntimeError(f"CPU fallback is disabled for operation={operation}: {reason}")
    log.debug("%s runs on the host: %s", operation, reason)


def compile_error(operation: str, error: Exception) -> None:
    """Raises RuntimeError, unless `TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS=0` lets the host run it."""
    if os.environ.get("TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS", "1") == "1":
        _raise(operation, error)
    require_fallback(operation, f"it failed to compile: {error}")


def _raise(operation: str, error: Exception) -> NoReturn:
    raise RuntimeError(
        f'Compilation error occurred on Neuron for operation={operation}; error message="COMPILATION FAILED: {error}"'
    ) from error
