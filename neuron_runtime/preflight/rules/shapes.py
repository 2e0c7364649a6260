"""Shapes that depend on data or change from step to step: each new one is a graph to compile, or runs on the host."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..finding import Finding, Level, Rule
from ..source import Source, argument, literal
from .base import found

DATA_SHAPE = Rule(
    "data-dependent-shape",
    Level.WARNING,
    "the result's shape depends on the data: it runs on the host, and breaks a compiled graph",
)
PADDING = Rule(
    "varying-length",
    Level.WARNING,
    "batches as long as their longest text have many shapes, and each is a graph to compile",
)

RULES = (DATA_SHAPE, PADDING)

_FUNCTIONS = {"nonzero", "argwhere", "masked_select", "unique", "unique_consecutive", "bincount"}
_METHODS = {"nonzero", "argwhere", "masked_select"}
_INSTEAD = {
    "nonzero": "use `torch.nonzero_static`, or `torch.where(mask, a, b)`",
    "argwhere": "use `torch.nonzero_static`, or `torch.where(mask, a, b)`",
    "masked_select": "use `torch.where(mask, x, 0)` and weigh by the mask",
    "bincount": "use `torch.zeros(n).scatter_add_(…)` with a fixed n",
}


def check(source: Source) -> Iterator[Finding]:
    for call, name in source.calls():
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        last = (name or "").removeprefix("torch.")
        if name == "torch.where" and len(call.args) == 1 and not call.keywords:
            yield found(source, call, DATA_SHAPE, "`torch.where` of a condition alone", _INSTEAD["nonzero"])
        elif name and name.startswith("torch.") and last in _FUNCTIONS:
            yield found(source, call, DATA_SHAPE, f"`{name}`", _INSTEAD.get(last, "compute it on the CPU"))
        elif name is None and method in _METHODS and _uses_torch(source) and not _of_numpy(source, call):
            yield found(source, call, DATA_SHAPE, f"`.{method}()`", _INSTEAD[method])
        padding = argument(call, "padding")
        if (literal(padding) is True and _tokenizes(source, call)) or literal(padding) == "longest":
            yield found(
                source, call, PADDING, f"`padding={literal(padding)!r}`", 'write `padding="max_length", max_length=…`'
            )


def _uses_torch(source: Source) -> bool:
    return any(name.partition(".")[0] == "torch" for name in source.imported.values())


def _of_numpy(source: Source, call: ast.Call) -> bool:
    """Whether the value that the method is of is made by numpy, or went to the host in the same expression."""
    assert isinstance(call.func, ast.Attribute)
    for node in ast.walk(call.func.value):
        if isinstance(node, ast.Attribute) and node.attr in ("numpy", "cpu"):
            return True
        if isinstance(node, ast.Name) and source.imported.get(node.id, "").partition(".")[0] in ("numpy", "scipy"):
            return True
    return False


def _tokenizes(source: Source, call: ast.Call) -> bool:
    text = ast.unparse(call.func).lower()
    return "tokeniz" in text or text.endswith(("processor", ".pad", "collator", "datacollatorwithpadding"))
