"""Which compiler this is: its own answer, asked once for each installation of it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from cache_server.launcher.arguments import NotCached

_SECONDS = 120.0  # the real one imports much before it answers
# Below its own, the compiler lists the versions of Python and others.
_VERSION = re.compile(
    r"(?:(?P<name>neuronx-cc-sim)|compiler|neuronx-cc)\s+version[: ]+(?P<version>[0-9]\S{0,150})", re.IGNORECASE
)
_REAL = "neuronx-cc"


class Compiler(NamedTuple):
    """The names that a key has for a compiler."""

    name: str
    version: str


def compiler_at(path: Path, notes: Path, environ: Mapping[str, str]) -> Compiler:
    """The compiler at `path`; what it said is kept in the private directory `notes`.

    An installation is known by the file's place, inode, size and times, and by what in the environment makes a script
    import other packages. Raises NotCached where it does not say what it is.
    """
    real = path.resolve()
    info = real.stat()
    installed = [str(path), str(real), info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns]
    installed += [environ.get(name, "") for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")]
    note = notes / f"{hashlib.sha256(json.dumps(installed).encode()).hexdigest()[:32]}.json"
    with contextlib.suppress(OSError, ValueError, TypeError):
        known = json.loads(note.read_bytes())
        return Compiler(str(known["name"]), str(known["version"]))
    compiler = _ask(path)
    with contextlib.suppress(OSError):
        _keep(note, compiler)
    return compiler


def _ask(path: Path) -> Compiler:
    import subprocess  # which most runs can do without

    try:
        done = subprocess.run([path, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotCached(f"`{path} --version` gave no answer: {error}") from error
    text = (done.stdout + b"\n" + done.stderr).decode(errors="replace")
    match = _VERSION.search(text)
    if done.returncode != 0 or match is None:
        said = text.strip().partition("\n")[0][:200] or "nothing"
        raise NotCached(f"`{path} --version` ended with {done.returncode} and said no version: {said}")
    return Compiler(match["name"] or _REAL, match["version"])


def _keep(note: Path, compiler: Compiler) -> None:
    from cache_server.hostlock import prepare_private

    prepare_private(note.parent)
    fresh = note.with_name(f"{note.name}-{os.urandom(8).hex()}")
    fresh.write_text(json.dumps(compiler._asdict()))
    fresh.replace(note)
