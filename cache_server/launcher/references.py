"""Files that a graph names, such as the binaries of hand-written kernels: they decide the result as well."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

_PATH = re.compile(rb"/[\w.+@-]+(?:/[\w.+@-]+)+")
_SOURCES = (
    ".py",
    ".pyx",
    ".ipynb",
    ".c",
    ".cc",
    ".cpp",
    ".cxx",
    ".h",
    ".hpp",
    ".mlir",
)  # of which graphs keep the names only
_ENCODED = re.compile(rb"eyJ[A-Za-z0-9+/]{16,}={0,2}")  # base64 of what begins like a JSON object
_LIMIT = 10_000  # paths of a graph that are looked at


def referenced_files(pieces: Iterable[bytes]) -> dict[str, str]:
    """The SHA-256 of each file on this host that the graph names by its absolute path, by that path.

    `pieces` are what counts of the graph. Kernels stand in a custom call's configuration, plain or in base64. Sources
    and scripts are left out: MLIR bytecode names those that the graph was made by. Raises OSError for a file that
    cannot be read.
    """
    found = {}
    for path in sorted({path for piece in pieces if b"/" in piece or b"eyJ" in piece for path in _paths(piece)})[
        :_LIMIT
    ]:
        if not path.endswith(_SOURCES) and Path(path).is_file():
            content = Path(path).read_bytes()
            if not content.startswith(b"#!"):
                found[path] = hashlib.sha256(content).hexdigest()
    return found


def _paths(ir: bytes) -> Iterator[str]:
    for match in _PATH.finditer(ir):
        yield match.group().decode(errors="replace")
    for match in _ENCODED.finditer(ir):
        text = match.group().rstrip(b"=")
        try:
            decoded = base64.b64decode(text + b"=" * (-len(text) % 4))
        except binascii.Error:
            continue
        for inner in _PATH.finditer(decoded):
            yield inner.group().decode(errors="replace")
