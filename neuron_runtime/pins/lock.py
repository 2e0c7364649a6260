"""neuron-env.lock: one set of pins, written down beside a project."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neuron_runtime.pins.catalog import Catalog
from neuron_runtime.pins.errors import PinsError
from neuron_runtime.pins.pinset import PinSet
from neuron_runtime.pins.release import Build, Component, Release
from neuron_runtime.pins.versions import order

LOCK_NAME = "neuron-env.lock"
CONSTRAINTS_NAME = "constraints.txt"
_SCHEMA = 1
_REDO = "write it again with `neuron-env pins lock`"


def constraints_text(pins: PinSet) -> str:
    """The file that pip takes with `-c`."""
    header = [
        f"# {pins.name} ({pins.build.kind}), written by neuron-env pins lock.",
        f"# Left open, since the release has several: {', '.join(sorted(pins.open))}." if pins.open else "",
    ]
    return "\n".join([*filter(None, header), *pins.constraints()]) + "\n"


def lock_text(pins: PinSet) -> str:
    """The lock as TOML; equal pins give equal bytes."""
    build = pins.build
    lines = [
        f"# Written by `neuron-env pins lock --sdk {pins.release.sdk} --torch {build.torch}`; do not edit.",
        f"schema = {_SCHEMA}",
        f"sdk = {_toml(pins.release.sdk)}",
        f"build = {_toml(build.kind)}",
    ]
    for key, value in (("python", build.python), ("families", build.families), ("wheels", build.wheels)):
        if value is not None:
            lines.append(f"{key} = [{', '.join(map(_toml, value))}]")
    if build.glibc is not None:
        lines.append(f"glibc = {_toml(build.glibc)}")
    for table, packages in (("python-packages", pins.python), ("system-packages", pins.system)):
        lines += ["", f"[{table}]", *(f"{name} = {_toml(pin)}" for name, pin in sorted(packages.items()))]
    return "\n".join(lines) + "\n"


def read_lock(path: Path, catalog: Catalog) -> PinSet:
    """The set a lock names; the catalog adds what needs what. Raises PinsError."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PinsError(f"there is no lock at {path}", hint="write one with `neuron-env pins lock`") from None
    except OSError as error:
        raise PinsError(f"the lock {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PinsError(f"the lock {path} is no TOML: {error}", hint=_REDO) from None
    if document.get("schema") != _SCHEMA:
        raise PinsError(f"the lock {path} has schema {document.get('schema')!r}, not {_SCHEMA}", hint=_REDO)
    python, system = (_packages(document, table, path) for table in ("python-packages", "system-packages"))
    kind = document.get("build")
    if kind not in ("native", "xla") or not {"torch", "torch-neuronx"} <= python.keys():
        raise PinsError(f"the lock {path} names no build of torch-neuronx", hint=_REDO)
    build = Build(
        kind=kind,
        torch=python.pop("torch"),
        torch_neuronx=python.pop("torch-neuronx"),
        sources={},
        python=_list(document, "python", path),
        families=_list(document, "families", path),
        wheels=_list(document, "wheels", path),
        glibc=str(document["glibc"]) if "glibc" in document else None,
    )
    components = [Component(name, "python", (pin,), "lock") for name, pin in python.items()]
    components += [Component(name, "system", (pin,), "lock") for name, pin in system.items()]
    sdk = str(document.get("sdk"))
    known = next((release.requires for release in catalog.releases if release.sdk == sdk), ())
    return PinSet(Release(sdk, "lock", components=tuple(components), requires=known), build)


def _packages(document: Mapping[str, Any], name: str, path: Path) -> dict[str, str]:
    table = document.get(name)
    if not isinstance(table, dict):
        raise PinsError(f"the lock {path} has no table [{name}]", hint=_REDO)
    for package, pin in table.items():
        try:
            order(pin)
        except (ValueError, TypeError, AttributeError):
            raise PinsError(f"the lock {path} pins {package} to {pin!r}, which is no version", hint=_REDO) from None
    return dict(table)


def _list(document: Mapping[str, Any], key: str, path: Path) -> tuple[str, ...] | None:
    values = document.get(key)
    if values is None:
        return None
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise PinsError(f"the lock {path}: `{key}` is no list of texts", hint=_REDO)
    return tuple(values)


def _toml(text: str) -> str:
    # A JSON string of ASCII is a basic string of TOML.
    return json.dumps(text)
