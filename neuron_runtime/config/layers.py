"""Which value a setting has and where from: environment, project file, user file, /etc, default."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from neuron_runtime.config.files import SYSTEM_FILE, ConfigFile, project_file, read_file, user_file
from neuron_runtime.config.registry import DEFAULTS, PREFIX
from neuron_runtime.errors import NeuronEnvError

CONFIG_VARIABLE = "NEURON_ENV_CONFIG"


@dataclass(frozen=True, slots=True)
class Origin:
    """A setting's value and where it is from: `environment`, `default`, or a file's layer with its path.

    value: None for a default, which is described instead
    """

    name: str
    value: str | None
    source: str
    path: Path | None = None


@dataclass(frozen=True, slots=True)
class Layers:
    """The environment and the files below it, the strongest first."""

    environ: Mapping[str, str]
    files: tuple[ConfigFile, ...]

    def merged(self) -> dict[str, str]:
        """The environment, and what the files set of what it leaves open."""
        merged: dict[str, str] = {}
        for file in reversed(self.files):
            merged.update(file.values)
        merged.update(self.environ)
        return merged

    def origin(self, name: str) -> Origin:
        # A variable that is set to nothing hides the files, and means the default.
        if name in self.environ:
            value = self.environ[name]
            return Origin(name, value, "environment") if value else Origin(name, None, "default")
        for file in self.files:
            if name in file.values:
                return Origin(name, file.values[name], file.layer, file.path)
        return Origin(name, None, "default")

    def origins(self) -> list[Origin]:
        """Of every setting of ours, and of what else is set under our prefix."""
        known = {*DEFAULTS, CONFIG_VARIABLE}
        strangers = sorted(name for name in self.environ if name.startswith(PREFIX) and name not in known)
        return [self.origin(name) for name in (*DEFAULTS, *strangers)]


def load_layers(environ: Mapping[str, str] | None = None, directory: Path | None = None) -> Layers:
    """Reads the files. `NEURON_ENV_CONFIG` names the one file to read, or `none` for none.

    Raises NeuronEnvError that names the file and what is wrong in it.
    """
    environ = os.environ if environ is None else environ
    chosen = environ.get(CONFIG_VARIABLE, "")
    if chosen == "none":
        return Layers(environ, ())
    if chosen:
        file = read_file("chosen", Path(chosen).expanduser())
        if file is None:
            raise NeuronEnvError(
                f"`{CONFIG_VARIABLE}` names a file that is not there: {chosen}", hint="or set it to `none`"
            )
        return Layers(environ, (file,))
    home = _home(environ)
    found: list[ConfigFile | None] = []
    if project := project_file(directory or _working_directory(), home):
        found.append(read_file("project", project))
    if user := user_file(environ, home):
        found.append(read_file("user", user))
    found.append(read_file("system", SYSTEM_FILE))
    return Layers(environ, tuple(file for file in found if file is not None))


def settings_environment() -> Mapping[str, str]:
    """What everything of ours reads its settings from: this process's environment, and the files below it."""
    layers = load_layers()
    return layers.merged() if layers.files else os.environ


def _home(environ: Mapping[str, str]) -> Path | None:
    home = environ.get("HOME", "")
    if home.startswith("/"):
        return Path(home)
    try:
        return Path.home()
    except RuntimeError:
        return None


def _working_directory() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path("/")
