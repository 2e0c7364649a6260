"""Bytes of a source file to findings. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from .finding import Finding, Level, Rule
from .rules import CHECKS, RULES
from .source import Source

SYNTAX = Rule("syntax", Level.ERROR, "the file cannot be read as Python 3")
ALL_RULES = {**RULES, SYNTAX.id: SYNTAX}


@dataclass(frozen=True)
class Examined:
    """A file and its findings, in the order of the text. `source` is None for what could not be parsed."""

    path: str
    source: Source | None
    findings: tuple[Finding, ...]


def examine(path: str, content: bytes, ignored: Collection[str] = ()) -> Examined:
    """Apply all rules but the `ignored`; a comment `# preflight: ignore[rule]` silences a line."""
    try:
        source = Source(path, content)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None) or 1
        column = getattr(error, "offset", None) or 1
        what = getattr(error, "msg", None) or str(error) or type(error).__name__
        finding = Finding(SYNTAX, path, line, column, line, column, what, None, SYNTAX.level)
        return Examined(path, None, () if SYNTAX.id in ignored else (finding,))
    findings = {
        (it.line, it.column, it.end_line, it.end_column, it.rule.id): it
        for check in CHECKS
        for it in check(source)
        if it.rule.id not in ignored and not source.silenced(it.line, it.rule.id)
    }
    return Examined(path, source, tuple(findings[place] for place in sorted(findings)))
