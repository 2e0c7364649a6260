"""Versions as pip, dpkg and rpm write them, compared with pins such as `2.14.3.0.*`."""

from __future__ import annotations

import re

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version


def plain(version: str) -> str:
    """The upstream part: without an epoch, a distribution's revision and a local build tag."""
    return re.split(r"[-+~]", re.sub(r"^\d+:", "", version.strip()), maxsplit=1)[0]


def specifier(pin: str) -> str:
    """`==2.14.3.0.*`: a pin as pip takes it. One of two numbers, such as torch `2.9`, stands for its patches too."""
    return f"=={pin}.*" if re.fullmatch(r"\d+\.\d+", pin) else f"=={pin}"


def matches(version: str, pin: str) -> bool:
    """Whether an installed version is the one pinned."""
    try:
        return SpecifierSet(specifier(plain(pin))).contains(Version(plain(version)), prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return version == pin


def at_least(version: str, bound: str) -> bool:
    """Whether a version is not older. What cannot be read as a version is taken for new enough."""
    try:
        return Version(plain(version)) >= Version(bound)
    except InvalidVersion:
        return True


def newer(version: str, pin: str) -> bool | None:
    """Whether a version is newer than a pin, None where they cannot be ordered or are equal."""
    try:
        left, right = order(version), order(pin)
    except InvalidVersion:
        return None
    return None if left == right else left > right


def series(version: str) -> str:
    """`2.14` of `2.14.3.0.1523`."""
    return ".".join(plain(version).split(".")[:2])


def order(version: str) -> Version:
    """A key to sort versions and pins by. Raises ValueError on what is neither."""
    return Version(plain(version).removesuffix(".*"))
