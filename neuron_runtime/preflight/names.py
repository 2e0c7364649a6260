"""What a name in a source stands for, as far as its imports tell: `tc.is_available` is `torch.cuda.is_available`."""

from __future__ import annotations

import ast
from collections.abc import Mapping

# The same things under their other names.
_SAME = {
    "torch.distributed.distributed_c10d": "torch.distributed",
    "torch.cuda.memory": "torch.cuda",
    "torch.cuda.random": "torch.cuda",
    "torch.cuda.streams": "torch.cuda",
    "torch.nn.parallel.data_parallel": "torch.nn",
    "torch.nn.parallel.DataParallel": "torch.nn.DataParallel",
    "torch.utils.data.dataloader": "torch.utils.data",
}


def imported_names(tree: ast.AST) -> dict[str, str]:
    """Local names by what they were imported as, wherever in the file that is."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.partition(".")[0]
                found[alias.asname or name] = name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


def canonical(name: str) -> str:
    for other, usual in _SAME.items():
        if name == other or name.startswith(other + "."):
            return usual + name.removeprefix(other)
    return name


def dotted(node: ast.AST, imported: Mapping[str, str]) -> str | None:
    """The full name of `a.b.c` where `a` was imported; None for anything else, such as a method of a value."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in imported:
        return None
    return canonical(".".join([imported[node.id], *reversed(parts)]))
