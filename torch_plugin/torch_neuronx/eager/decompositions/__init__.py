"""Operators in terms of others that compile, in eager mode; grouped by nature, on top of the table for programs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


@functools.cache
def eager_decompositions() -> dict[Any, Callable[..., Any]]:
    """Of all groups; a later one counts."""
    from torch_neuronx.eager import operators
    from torch_neuronx.eager.decompositions import (
        bessel,
        grids,
        incomplete,
        library,
        linalg,
        orthogonal,
        places,
        polynomials,
        recurrent,
        scans,
        special,
        windows,
    )

    groups = (
        library,
        operators,
        scans,
        special,
        incomplete,
        bessel,
        polynomials,
        linalg,
        windows,
        places,
        orthogonal,
        grids,
        recurrent,
    )
    return {operator: rule for group in groups for operator, rule in group.table().items()}
