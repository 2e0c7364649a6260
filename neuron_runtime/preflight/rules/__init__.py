"""The rules: a file for each kind, each with `check(source)`."""

from __future__ import annotations

from . import compiling, cuda, dtypes, layouts, libraries, processes, shapes, strings
from .base import Check

CHECKS: tuple[Check, ...] = tuple(
    module.check for module in (strings, cuda, dtypes, layouts, shapes, compiling, processes, libraries)
)
RULES = {
    rule.id: rule
    for rule in (
        strings.CUDA_DEVICE,
        *cuda.RULES,
        *dtypes.RULES,
        *layouts.RULES,
        *shapes.RULES,
        *compiling.RULES,
        *processes.RULES,
        *libraries.RULES,
    )
}
