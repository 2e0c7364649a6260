"""The mechanical mends of a file, as new text and as a unified diff."""

from __future__ import annotations

import ast
import difflib
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from neuron_runtime.errors import NeuronEnvError

from .examine import Examined
from .finding import Edit


def mended(examined: Examined) -> str | None:
    """The text with all edits made that do not overlap; None if there is nothing to change."""
    source = examined.source
    if source is None:
        return None
    wanted = sorted(edit for finding in examined.findings for edit in finding.edits)
    edits = _apart(wanted)
    if not edits:
        return None
    lines = [line.encode() for line in source.lines]
    for edit in reversed(edits):
        first, last = lines[edit.line - 1], lines[edit.end_line - 1]
        whole = first[: edit.column] + edit.text.encode() + last[edit.end_column :]
        lines[edit.line - 1 : edit.end_line] = [whole]
    text = b"".join(lines).decode()
    # A mend that breaks the file would be worse than none.
    ast.parse(text)
    return text


def _apart(edits: Iterable[Edit]) -> list[Edit]:
    kept: list[Edit] = []
    for edit in edits:
        if edit in kept:
            continue
        if kept and (edit.line, edit.column) < (kept[-1].end_line, kept[-1].end_column):
            continue
        kept.append(edit)
    return kept


def diff(examined: Examined, text: str) -> str:
    """A unified diff that `git apply` and `patch -p1` take."""
    assert examined.source is not None
    path = examined.path.lstrip("/")
    old, new = examined.source.text.splitlines(keepends=True), text.splitlines(keepends=True)
    lines: list[str] = []
    for line in difflib.unified_diff(old, new, f"a/{path}", f"b/{path}"):
        lines.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(lines)


def write(examined: Examined, text: str) -> None:
    """Replace the file whole, with its mode and encoding kept. Raises if it changed since it was read."""
    assert examined.source is not None
    place = Path(examined.path).resolve()
    encoding = examined.source.encoding
    if place.read_bytes() != examined.source.text.encode(encoding):
        raise NeuronEnvError(f"{examined.path} changed while it was examined", hint="run preflight again")
    descriptor, name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode(encoding))
        shutil.copymode(place, name)
        Path(name).replace(place)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
