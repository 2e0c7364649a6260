"""The digest of a graph: what is compiled, without where it came from."""

from __future__ import annotations

import hashlib
import re

# A string literal is matched first, so that "loc(" inside one is never taken for a location.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[ \t]*(?<![\w#.$%@])loc\(', re.DOTALL)
_NESTING = re.compile(r'"(?:[^"\\]|\\.)*"|[()]', re.DOTALL)
_ALIAS_LINE = re.compile(r"^#loc\d* *= *loc\(.*\)\n?", re.MULTILINE)


def digest_ir(ir: bytes) -> str:
    """SHA-256 of a graph in hexadecimal: StableHLO text or bytecode, or an HLO protobuf.

    Source locations in MLIR text (`loc(...)`, `#loc1 = ...`) do not count, so a script that moved to another path
    or line keeps its key. Binary forms are hashed as they are: whoever writes them leaves debug information out.
    """
    return hashlib.sha256(_without_locations(ir)).hexdigest()


def _without_locations(ir: bytes) -> bytes:
    if b"loc(" not in ir or b"\0" in ir:
        return ir
    try:
        text = ir.decode("utf-8")
    except UnicodeDecodeError:
        return ir
    text = _ALIAS_LINE.sub("", text)
    kept: list[str] = []
    position = 0
    while match := _TOKEN.search(text, position):
        if match.group().startswith('"'):
            kept.append(text[position : match.end()])
            position = match.end()
            continue
        end = _closing(text, match.end())
        if end is None:
            return ir
        kept.append(text[position : match.start()])
        position = end
    kept.append(text[position:])
    return "".join(kept).encode()


def _closing(text: str, position: int) -> int | None:
    """The index after the parenthesis that closes the one just before `position`; None if it is never closed."""
    depth = 1
    while match := _NESTING.search(text, position):
        position = match.end()
        depth += {"(": 1, ")": -1}.get(match.group(), 0)
        if depth == 0:
            return position
    return None
