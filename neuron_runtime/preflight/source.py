"""A source file as rules see it: its tree, what names stand for, and what surrounds a node."""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from collections.abc import Iterator
from functools import cached_property

from .names import dotted, imported_names

_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_SILENCE = re.compile(r"#\s*preflight:\s*ignore(?:\[([^\]]*)\])?")
_GUARDS = re.compile(r"cuda|hip\b|rocm|nvidia", re.IGNORECASE)


class Source:
    """Raises SyntaxError or UnicodeDecodeError for what is no Python 3."""

    def __init__(self, path: str, content: bytes) -> None:
        self.path = path
        self.encoding = tokenize.detect_encoding(io.BytesIO(content).readline)[0]
        self.text = content.decode(self.encoding)
        with warnings.catch_warnings():
            # Not ours to report: a wrong escape in a string.
            warnings.simplefilter("ignore")
            self.tree = ast.parse(self.text, path)
        self.lines = _LINES.findall(self.text)
        self.imported = imported_names(self.tree)

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    def name(self, node: ast.AST) -> str | None:
        return dotted(node, self.imported)

    def calls(self) -> Iterator[tuple[ast.Call, str | None]]:
        for node in self.nodes:
            if isinstance(node, ast.Call):
                yield node, self.name(node.func)

    def ancestors(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        """From the inside out, pairs of an ancestor and the child of it on the way."""
        while (above := self.parents.get(node)) is not None:
            yield above, node
            node = above

    def for_other_devices(self, node: ast.AST) -> bool:
        """Whether `node` runs only where CUDA was found, so that a Neuron device never comes to it."""
        for above, child in self.ancestors(node):
            if isinstance(above, ast.If | ast.IfExp):
                body = above.body if isinstance(above.body, list) else [above.body]
                if any(child is it for it in body) and self._asks_for_cuda(above.test):
                    return True
            if isinstance(above, ast.BoolOp) and isinstance(above.op, ast.And):
                before = above.values[: next(at for at, it in enumerate(above.values) if it is child)]
                if any(self._asks_for_cuda(it) for it in before):
                    return True
        return False

    def _asks_for_cuda(self, test: ast.AST) -> bool:
        if isinstance(test, ast.BoolOp):
            return isinstance(test.op, ast.And) and any(self._asks_for_cuda(it) for it in test.values)
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return False
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.NotEq | ast.NotIn | ast.IsNot):
            return False
        return _GUARDS.search(ast.unparse(test)) is not None

    def only_named(self, node: ast.AST) -> bool:
        """Whether `node` is compared with, or stands in a list of what a program knows, and nothing is made of it."""
        above = self.parents.get(node)
        return isinstance(above, ast.Compare | ast.Tuple | ast.List | ast.Set | ast.Dict)

    def silenced(self, line: int, rule: str) -> bool:
        """Whether a comment on the line, `# preflight: ignore` or `# preflight: ignore[rule]`, says to pass over."""
        found = _SILENCE.search(self.lines[line - 1]) if 0 < line <= len(self.lines) else None
        return found is not None and (found[1] is None or rule in (name.strip() for name in found[1].split(",")))

    def character(self, line: int, column: int) -> int:
        """The column in characters, from 1, of a column in UTF-8 bytes, from 0."""
        if not 0 < line <= len(self.lines):
            return column + 1
        return len(self.lines[line - 1].encode()[:column].decode(errors="replace")) + 1


def argument(call: ast.Call, name: str, position: int | None = None) -> ast.expr | None:
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    return call.args[position] if position is not None and position < len(call.args) else None


def literal(node: ast.AST | None) -> object:
    return node.value if isinstance(node, ast.Constant) else None
