"""What the command line names: files, directories, and `MODULE:FACTORY`, found without importing anything."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from neuron_runtime.errors import NeuronEnvError

_PASSED_BY = {"__pycache__", "node_modules", "site-packages", "build", "dist", "venv"}


def files_of(target: str, path: Sequence[str] | None = None) -> list[Path]:
    """The Python files that `target` stands for. `path` is where modules are looked for; default `.` and sys.path.

    Raises NeuronEnvError for what is not there.
    """
    place = Path(target)
    if place.is_dir():
        found = sorted(_below(place))
        if not found:
            raise NeuronEnvError(
                f"there is no Python file in {target}", hint="name files, directories or MODULE:FACTORY"
            )
        return found
    if place.is_file():
        return [place]
    module, colon, factory = target.rpartition(":")
    if colon and factory.isidentifier() and module:
        named = Path(module)
        if module.endswith(".py") and named.is_file():
            return [named]
        if all(part.isidentifier() for part in module.split(".")):
            found_module = _module(module.split("."), [".", *sys.path] if path is None else path)
            if found_module:
                return [found_module]
            raise NeuronEnvError(
                f"there is no module `{module}`",
                hint="run it where the module is, or name a file: `path/file.py:factory`",
            )
    raise NeuronEnvError(f"{target}: no such file or directory", hint="name files, directories or MODULE:FACTORY")


def _module(parts: Sequence[str], path: Sequence[str]) -> Path | None:
    for entry in path:
        base = Path(entry or ".").joinpath(*parts)
        for place in (base / "__init__.py", base.with_name(base.name + ".py")):
            if place.is_file():
                return place
    return None


def _below(directory: Path) -> Iterator[Path]:
    for place in sorted(directory.iterdir()):
        if place.name.startswith(".") or place.name in _PASSED_BY or (place.is_symlink() and place.is_dir()):
            continue
        if place.is_dir():
            if not (place / "pyvenv.cfg").exists():
                yield from _below(place)
        elif place.suffix == ".py" and place.is_file():
            yield place
