"""A list of packages: what `pip freeze`, `uv pip freeze`, `pip list` or a requirements file prints."""

from __future__ import annotations

import json
import re
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from neuron_runtime.pins.errors import PinsError
from neuron_runtime.pins.observed import Observed

_COLUMNS = re.compile(r"([A-Za-z0-9][\w.-]*)\s+(\d\S*)(\s+\S.*)?")
_EDITABLE = re.compile(r"# Editable .*\(([\w.-]+)==([^)\s]+)\)")


def read_freeze(text: str, source: str) -> Observed:
    """Versions by normal name. Raises PinsError where no line names a package with its version."""
    packages = _from_json(text) if text.lstrip().startswith("[{") else _from_lines(text)
    if not packages:
        raise PinsError(
            f"{source} names no package with a version", hint=f"write it with `python -m pip freeze > {source}`"
        )
    _, plus, local = packages.get("torch", "").partition("+")
    return Observed(source=source, python_packages=packages, torch_build=local if plus else None)


def _from_json(text: str) -> dict[str, str]:
    try:
        return {canonicalize_name(item["name"]): str(item["version"]) for item in json.loads(text)}
    except (ValueError, KeyError, TypeError) as error:
        raise PinsError(f"not the JSON of `pip list --format json`: {error}") from None


def _from_lines(text: str) -> dict[str, str]:
    packages: dict[str, str] = {}
    for line in text.splitlines():
        found = _EDITABLE.match(line.strip())
        if found:
            packages[canonicalize_name(found[1])] = found[2]
            continue
        pair = _pair(re.split(r"\s#|\s--|\s*\\$|^#", line.strip(), maxsplit=1)[0].strip())
        if pair:
            packages[canonicalize_name(pair[0])] = pair[1]
    return packages


def _pair(line: str) -> tuple[str, str] | None:
    if not line or line.startswith("-"):
        return None
    if columns := _COLUMNS.fullmatch(line):
        return columns[1], columns[2]
    try:
        requirement = Requirement(line)
    except InvalidRequirement:
        return None
    if requirement.url:
        return _wheel(requirement.url)
    exact = [
        spec.version for spec in requirement.specifier if spec.operator in ("==", "===") and "*" not in spec.version
    ]
    return (requirement.name, exact[0]) if exact else None


def _wheel(url: str) -> tuple[str, str] | None:
    try:
        name, version, _, _ = parse_wheel_filename(unquote(urlsplit(url).path).rpartition("/")[2])
    except InvalidWheelFilename:
        return None
    return name, str(version)
