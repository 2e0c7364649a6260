"""Putting the launcher on PATH, taking it away, and telling whether it works where it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cache_server.launcher.shim import NAME, is_shim, shim_text
from neuron_runtime.compiler.output import write_output
from neuron_runtime.errors import NeuronEnvError

_SECONDS = 30.0
_PROGRAM = Path(__file__).with_name("__main__.py").resolve()


class LauncherError(NeuronEnvError):
    """The launcher cannot be put there, or is not there."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What a `neuronx-cc` typed with some PATH does.

    `shim` is the launcher in `directory`, None if there is none; `first` is what PATH has first, `next` what the
    launcher would run. `current`: the launcher is as this neuron-env would write it.
    """

    directory: Path
    shim: Path | None
    current: bool
    first: Path | None
    next: Path | None

    @property
    def problem(self) -> str | None:
        """Why compiles do not go through the cache; None if they do."""
        if self.shim is None:
            return f"there is no launcher in {self.directory}"
        if self.first is None or not is_shim(self.first):
            found = f"{self.first} is found before it" if self.first else f"{self.directory} is not on it"
            return f"PATH does not lead to the launcher: {found}"
        if self.next is None:
            return f"there is no other {NAME} on PATH that the launcher could run"
        if not self.current:
            return "the launcher was written by another version or another installation of neuron-env"
        return None


def default_directory() -> Path:
    """A directory that comes and goes with the installation of neuron-env that the launcher uses."""
    return Path(sys.prefix) / "libexec" / "neuron-env"


def install(directory: Path) -> Path:
    """Puts the launcher into `directory`, which is made if need be; returns its path.

    Raises LauncherError where a `neuronx-cc` lies there that is none of ours, and where nothing can be written.
    """
    target = directory / NAME
    if (target.exists() or target.is_symlink()) and not is_shim(target):
        raise LauncherError(
            f"{target} is not a launcher, and it is not replaced",
            hint="choose a directory of its own with `--dir`, and put it before that one on PATH",
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if target.is_symlink():
            target.unlink()
        write_output(target, _text().encode())
        target.chmod(0o755)
    except OSError as error:
        raise LauncherError(
            f"the launcher cannot be written to {directory}: {error.strerror}",
            hint="choose a directory that you can write to with `--dir`, or become its owner",
        ) from error
    return target


def uninstall(directory: Path) -> Path:
    """Removes the launcher from `directory`; returns where it was. Raises LauncherError where none is."""
    target = directory / NAME
    if not is_shim(target):
        what = "is not a launcher, and it is not removed" if target.exists() else "does not exist"
        raise LauncherError(f"{target} {what}", hint="name the launcher's directory with `--dir`")
    try:
        target.unlink()
        if directory == default_directory():
            directory.rmdir()
    except OSError as error:
        if target.exists():
            raise LauncherError(f"{target} cannot be removed: {error.strerror}") from error
    return target


def standing(directory: Path, environ: Mapping[str, str]) -> Standing:
    """How things are for a process with this environment."""
    shim = directory / NAME
    there = shim if is_shim(shim) else None
    found = shutil.which(NAME, path=environ.get("PATH", os.defpath))
    first = Path(found) if found else None
    using = first if first is not None and is_shim(first) else there
    return Standing(
        directory=directory,
        shim=there,
        current=using is not None and using.read_text(errors="replace") == _text(),
        first=first,
        next=_next(using, environ) if using else None,
    )


def real_compiler(environ: Mapping[str, str]) -> Path | None:
    """The compiler that `neuronx-cc` means with this environment, behind a launcher or without one; None for none."""
    found = shutil.which(NAME, path=environ.get("PATH", os.defpath))
    if found is None:
        return None
    return _next(Path(found), environ) if is_shim(Path(found)) else Path(found).absolute()


def _text() -> str:
    # The interpreter starts without its site packages' start-up code, which takes longer than a look-up.
    packages = [_PROGRAM.parents[2], *(Path(sysconfig.get_path(name)) for name in ("purelib", "platlib"))]
    return shim_text(Path(sys.executable), _PROGRAM, list(dict.fromkeys(packages)))


def _next(shim: Path, environ: Mapping[str, str]) -> Path | None:
    asked = {**environ, "NEURON_ENV_LAUNCHER": "which"}
    asked.pop("NEURON_ENV_LAUNCHER_RAN", None)
    try:
        done = subprocess.run([shim], env=asked, capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = done.stdout.rstrip("\n")
    return Path(found) if found else None
