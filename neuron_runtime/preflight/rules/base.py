"""How rules make findings."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from ..finding import Edit, Finding, Level, Rule
from ..source import Source

Check = Callable[[Source], Iterator[Finding]]


def found(source: Source, node: ast.AST, rule: Rule, what: str, instead: str | None = None, *edits: Edit) -> Finding:
    """A finding at `node`; what only runs beside CUDA harms nobody, and is a note."""
    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
    end_line, end_column = getattr(node, "end_lineno", None) or line, getattr(node, "end_col_offset", None) or column
    level = rule.level
    if level is not Level.NOTE and source.for_other_devices(node):
        level = Level.NOTE
    return Finding(
        rule,
        source.path,
        line,
        source.character(line, column),
        end_line,
        source.character(end_line, end_column),
        what,
        instead,
        level,
        edits,
    )


def replacing(node: ast.expr, text: str) -> Edit:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return Edit(node.lineno, node.col_offset, node.end_lineno, node.end_col_offset, text)


def after(node: ast.expr, text: str) -> Edit:
    """An insertion behind `node`."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return Edit(node.end_lineno, node.end_col_offset, node.end_lineno, node.end_col_offset, text)


def before(node: ast.AST, text: str) -> Edit:
    line, column = node.lineno, node.col_offset  # type: ignore[attr-defined]
    return Edit(line, column, line, column, text)
