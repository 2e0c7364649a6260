"""Layouts of tensors that the device does not hold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..finding import Finding, Level, Rule
from ..source import Source, argument, literal
from .base import found

CHANNELS_LAST = Rule(
    "channels-last", Level.ERROR, "the device knows contiguous and preserve only, and refuses `channels_last`"
)
SPARSE = Rule(
    "sparse",
    Level.ERROR,
    "the device has no sparse tensors; the vendor's pages name none, and the simulated device raises",
)
NESTED = Rule(
    "nested-tensor",
    Level.WARNING,
    "nested tensors are not known to work, and each set of lengths is a graph to compile",
)

RULES = (CHANNELS_LAST, SPARSE, NESTED)

_SPARSE_METHOD = re.compile(r"to_sparse(_(csr|csc|bsr|bsc|coo))?")
_SPARSE_NAME = re.compile(r"torch\.(sparse\.\w+|sparse_(coo|csr|csc|bsr|bsc|compressed)(_tensor)?|hspmm|sspaddmm)")


def check(source: Source) -> Iterator[Finding]:
    for node in source.nodes:
        if isinstance(node, ast.Attribute | ast.Name) and not isinstance(source.parents.get(node), ast.Attribute):
            name = source.name(node) or ""
            if source.only_named(node) or _asks_for_contiguous(source, node):
                continue
            if name in ("torch.channels_last", "torch.channels_last_3d"):
                yield found(source, node, CHANNELS_LAST, f"`{name}`", "leave the memory format as it is")
            elif _SPARSE_NAME.fullmatch(name):
                yield found(source, node, SPARSE, f"`{name}`", "use dense tensors, or compute that part on the CPU")
            elif name.startswith("torch.nested."):
                yield found(source, node, NESTED, f"`{name}`", "pad to a fixed length, with a mask")
    for call, called in source.calls():
        if isinstance(call.func, ast.Attribute) and called is None and _SPARSE_METHOD.fullmatch(call.func.attr):
            yield found(
                source, call, SPARSE, f"`.{call.func.attr}()`", "use dense tensors, or compute that part on the CPU"
            )
        last = (called or "").rpartition(".")[2]
        if last in ("Embedding", "EmbeddingBag") and literal(argument(call, "sparse")) is True:
            yield found(source, call, SPARSE, f"`{last}(sparse=True)`", "leave out `sparse=True`")


def _asks_for_contiguous(source: Source, node: ast.AST) -> bool:
    return any(
        isinstance(above, ast.Call) and isinstance(above.func, ast.Attribute) and above.func.attr == "is_contiguous"
        for above, _ in source.ancestors(node)
    )
