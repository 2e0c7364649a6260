"""One configuration file: found, judged, read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from neuron_runtime.config.registry import DEFAULTS, NOT_FROM_A_PROJECT, PREFIX, SECRET, file_key
from neuron_runtime.errors import NeuronEnvError

Layer = Literal["project", "user", "system", "chosen"]

PROJECT_FILE = "neuron-env.toml"
SYSTEM_FILE = Path("/etc/neuron-env/config.toml")
_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file and what it sets, by variable; `ignored` is why it is not used."""

    layer: Layer
    path: Path
    values: Mapping[str, str]
    ignored: str | None = None


def project_file(directory: Path, home: Path | None) -> Path | None:
    """The nearest file from `directory` upwards, no further than the repository's root or the home directory."""
    for folder in (directory, *directory.parents):
        if (folder / PROJECT_FILE).is_file():
            return folder / PROJECT_FILE
        if (folder / ".git").exists() or folder == home:
            return None
    return None


def user_file(environ: Mapping[str, str], home: Path | None) -> Path | None:
    """Below XDG_CONFIG_HOME, else below ~/.config; None for a user without a home."""
    chosen = environ.get("XDG_CONFIG_HOME", "")
    if chosen.startswith("/"):
        return Path(chosen) / "neuron-env" / "config.toml"
    return home / ".config" / "neuron-env" / "config.toml" if home else None


def read_file(layer: Layer, path: Path) -> ConfigFile | None:
    """None where there is no such file. Raises NeuronEnvError that names the file and what is wrong in it."""
    try:
        with path.open("rb") as file:
            info = os.fstat(file.fileno())
            data = file.read(_MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise NeuronEnvError(f"the settings in {path} cannot be read: {error.strerror}") from None
    if layer == "project" and (reason := _not_trusted(info)):
        return ConfigFile(layer, path, {}, ignored=reason)
    if len(data) > _MAX_BYTES:
        raise NeuronEnvError(f"the settings in {path} are larger than 1 MiB")
    import tomllib  # most users have no file

    try:
        document = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise NeuronEnvError(
            f"{path} is no TOML: {error}", hint=f"correct it, for instance with `$EDITOR {path}`"
        ) from None
    values = dict(_settings(document, path))
    for name in values:
        if layer == "project" and name in NOT_FROM_A_PROJECT:
            raise NeuronEnvError(
                f"`{file_key(name)}` may not be set by a project's file: {path}",
                hint="set it in ~/.config/neuron-env/config.toml, or in the environment",
            )
        if name in SECRET and info.st_mode & 0o077:
            raise NeuronEnvError(
                f"{path} holds the secret `{file_key(name)}`, and others may read it", hint=f"type `chmod 600 {path}`"
            )
    return ConfigFile(layer, path, values)


def _not_trusted(info: os.stat_result) -> str | None:
    """A project's file says where compiled code comes from, so it has to be this user's own."""
    if info.st_uid not in (os.geteuid(), 0):
        return f"it belongs to another user (uid {info.st_uid})"
    return "everybody may write to it" if stat.S_IMODE(info.st_mode) & 0o002 else None


def _settings(document: Mapping[str, Any], path: Path) -> Iterator[tuple[str, str]]:
    for key, value in _flat(document):
        name = PREFIX + key.replace(".", "_").replace("-", "_").upper()
        if name not in DEFAULTS or file_key(name) != key.replace("-", "_"):
            import difflib

            keys = [file_key(known) for known in DEFAULTS]
            near = difflib.get_close_matches(key, keys, 1)
            raise NeuronEnvError(
                f"{path}: there is no setting `{key}`" + (f"; did you mean `{near[0]}`?" if near else ""),
                hint="see `neuron-env config show` for all of them",
            )
        yield name, _text(key, value, path)


def _flat(document: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, dict):
            yield from ((f"{key}.{inner}", item) for inner, item in value.items())
        else:
            yield key, value


def _text(key: str, value: object, path: Path) -> str:
    """A value as the environment would hold it."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    raise NeuronEnvError(f"{path}: `{key}` is neither text, number, yes or no, nor a list of texts")
