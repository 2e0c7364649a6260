"""The digest of a graph: what is compiled, without where it came from."""

from __future__ import annotations

import hashlib
import re

from cache_server.hlo import essence_of_hlo
from cache_server.mlirbytecode import MAGIC, essence_of_bytecode

# A string literal is matched first, so that "loc(" inside one is never taken for a location.
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[ \t]*(?<![\w#.$%@])loc\(', re.DOTALL)
_NESTING = re.compile(r'"(?:[^"\\]|\\.)*"|[()]', re.DOTALL)
_HLO_BEGINS = (b"\x0a", b"\x12", b"\x1a")  # its name, its entry, its first computation
_ALIAS_LINE = re.compile(r"^#loc\d* *= *loc\(.*\)\n?", re.MULTILINE)


def digest_ir(ir: bytes) -> str:
    """SHA-256 of a graph in hexadecimal: StableHLO text or bytecode, or an HLO protobuf.

    Source locations in MLIR text (`loc(...)`, `#loc1 = ...`) do not count, so a script that moved to another path
    or line keeps its key. Neither do the metadata of an HLO protobuf, nor the directories of source files in MLIR
    bytecode. What is none of these is hashed as it is.
    """
    return digest_pieces(canonical_pieces(ir))


def canonical_pieces(ir: bytes) -> list[bytes]:
    """What counts of a graph: one text or other bytes, or the several pieces of a binary form."""
    pieces = None
    if ir.startswith(MAGIC):
        pieces = essence_of_bytecode(ir)
    elif ir[:1] in _HLO_BEGINS:
        pieces = essence_of_hlo(ir)
    return [_without_locations(ir)] if pieces is None else pieces


def digest_pieces(pieces: list[bytes]) -> str:
    """`digest_ir` of the graph that the pieces are of."""
    if len(pieces) == 1:
        return hashlib.sha256(pieces[0]).hexdigest()
    digest = hashlib.sha256(b"essence 1\0")
    for piece in pieces:
        digest.update(len(piece).to_bytes(8, "little"))
        digest.update(piece)
    return digest.hexdigest()


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
