"""The files of a compile: what it made is taken up, and put where the next caller wants it."""

from __future__ import annotations

import re
import stat
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from cache_server.launcher.arguments import LOGS, Call
from cache_server.outputs import Built
from neuron_runtime.compiler.output import write_output

_OUTPUTS_LIMIT = 256 << 20  # bytes of all other outputs together
_COUNT_LIMIT = 32
_PLAIN = re.compile(r"[^\s=,;'\"]*[/.][^\s=,;'\"]*")  # a value that may be a file's name
_HEADER = 1024  # bytes of a NEFF

State = tuple[int, int, int] | None


class NotKept(Exception):  # noqa: N818 - an outcome, not an error
    """The compiler ended with status 0, but what it left is not fit to be kept: the text says why."""


def named_files(call: Call) -> dict[str, Path]:
    """The files that options of the command name, and that it may have written; equal commands name them equally."""
    seen: Counter[str] = Counter()
    found: dict[str, Path] = {}
    for name, value in call.options:
        number, seen[name] = seen[name], seen[name] + 1
        if value and _PLAIN.fullmatch(value) and len(found) < _COUNT_LIMIT:
            found[f"{name}#{number}"] = Path(value)
    return found


def states(files: Mapping[str, Path]) -> dict[str, State]:
    """What can be seen of each file before and after a compile: None where there is no regular file."""
    return {name: _state(path) for name, path in files.items()}


def take_up(call: Call, before: Mapping[str, State]) -> Built:
    """What a successful compile left: its NEFF, and the files named by options that it made or changed.

    Raises NotKept where the output is none that anybody should be given.
    """
    try:
        neff = Path(call.output).read_bytes()
    except OSError as error:
        raise NotKept(f"its output `{call.output}` cannot be read: {error.strerror}") from error
    sizes = [int.from_bytes(neff[at : at + 8], "little") for at in (8, 16)]
    if len(neff) < _HEADER or sizes != [_HEADER, len(neff) - _HEADER]:
        raise NotKept(f"its output `{call.output}` is no complete NEFF")
    files = named_files(call)
    changed = {name: path for name, path in files.items() if _state(path) not in (None, before[name])}
    if sum(path.stat().st_size for path in changed.values()) > _OUTPUTS_LIMIT:
        raise NotKept(f"its other outputs are larger than {_OUTPUTS_LIMIT >> 20} MiB: {', '.join(changed)}")
    return Built(neff, {name: path.read_bytes() for name, path in changed.items()})


def lacks(call: Call, outputs: Mapping[str, bytes]) -> str | None:
    """The log that the command asks for and a hit does not have, as one that came from an export; None for nothing."""
    return next((name for name in named_files(call) if name.partition("#")[0] in LOGS and name not in outputs), None)


def put_down(call: Call, neff: bytes, outputs: Mapping[str, bytes]) -> None:
    """Writes what a compile would have left, the NEFF last. Each file is complete or not there. Raises OSError."""
    files = named_files(call)
    for name, content in outputs.items():
        if name in files:
            write_output(files[name], content)
    write_output(Path(call.output), neff)


def _state(path: Path) -> State:
    try:
        info = path.stat()
    except OSError:
        return None
    return (info.st_ino, info.st_size, info.st_mtime_ns) if stat.S_ISREG(info.st_mode) else None
