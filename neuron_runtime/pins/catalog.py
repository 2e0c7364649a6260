"""All releases there are data files for. A new release is one more file."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuron_runtime.pins.errors import PinsError
from neuron_runtime.pins.pinset import PinSet
from neuron_runtime.pins.release import Release, Source
from neuron_runtime.pins.versions import order, series

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True)
class Repositories:
    """Where pip and apt get the packages."""

    pip_indexes: tuple[str, ...]
    apt_url: str
    apt_key: str
    apt_keyring: str


@dataclass(frozen=True, slots=True)
class Catalog:
    """Releases, oldest first; sources by tag."""

    releases: tuple[Release, ...]
    sources: Mapping[str, Source]
    repositories: Repositories

    def release(self, sdk: str) -> Release:
        """Raises PinsError naming the releases there are."""
        found = next((release for release in self.releases if release.sdk == sdk), None)
        if found is None:
            names = ", ".join(release.sdk for release in self.releases)
            raise PinsError(f"SDK {sdk} is not in the catalog", hint=f"choose one of {names}")
        return found

    def pin_set(self, sdk: str | None = None, torch: str | None = None) -> PinSet:
        """The set of a release and a torch (`2.14` or `2.14.0`); by default the newest of what is left open.

        Raises PinsError that says what there is instead.
        """
        releases = [self.release(sdk)] if sdk else [release for release in reversed(self.releases) if release.builds]
        for release in releases:
            if not release.components:
                raise PinsError(
                    f"the component versions of SDK {release.sdk} are not known",
                    hint=f"use {self.newest.release.sdk}, the newest that is known",
                )
            builds = sorted(release.builds, key=lambda build: order(build.torch), reverse=True)
            for build in builds:
                if torch is None or series(build.torch) == series(torch):
                    return PinSet(release, build)
            if sdk and not builds:
                others = dict.fromkeys(pins.release.sdk for pins in self.pin_sets())
                raise PinsError(f"SDK {sdk} has no torch-neuronx", hint=f"there is one in SDK {', '.join(others)}")
            if sdk:
                raise PinsError(
                    f"SDK {sdk} has no torch-neuronx for torch {torch}",
                    hint=f"it has one for torch {', '.join(build.torch for build in builds)}",
                )
        known = sorted({series(pins.build.torch) for pins in self.pin_sets()}, key=order)
        raise PinsError(f"no release has a torch-neuronx for torch {torch}", hint=f"there is torch {', '.join(known)}")

    def pin_sets(self) -> list[PinSet]:
        """Every one there is, newest first, and of a release that with the newest torch first."""
        return [
            PinSet(release, build)
            for release in reversed(self.releases)
            for build in sorted(release.builds, key=lambda build: order(build.torch), reverse=True)
        ]

    @property
    def newest(self) -> PinSet:
        return self.pin_sets()[0]


def load_catalog(directory: Path | None = None) -> Catalog:
    """The catalog of a directory of data files, by default ours. Raises PinsError naming the file that is wrong."""
    return _load(directory or DATA)


@functools.cache
def _load(directory: Path) -> Catalog:
    sources = {tag: _source(tag, table) for tag, table in _read(directory / "sources.toml").items()}
    files = sorted(path for path in directory.glob("*.toml") if re.fullmatch(r"\d+(\.\d+)+", path.stem))
    if not files:
        raise PinsError(f"there are no releases in {directory}")
    releases = []
    for path in files:
        release = Release.parse(_read(path), sources, path.name)
        if release.sdk != path.stem:
            raise PinsError(f"{path.name} describes SDK {release.sdk}", hint="a release's file has its number as name")
        releases.append(release)
    repositories = _read(directory / "repositories.toml")
    try:
        pip, apt = repositories["pip"], repositories["apt"]
        places = Repositories(tuple(pip["indexes"]), apt["url"], apt["key"], apt["keyring"])
    except (KeyError, TypeError) as error:
        raise PinsError(f"repositories.toml lacks {error}") from None
    releases.sort(key=lambda release: order(release.sdk))
    return Catalog(tuple(releases), sources, places)


def _source(tag: str, table: Mapping[str, Any]) -> Source:
    try:
        return Source(tag, table["title"], table["date"], table["trust"], table.get("url"))
    except (KeyError, TypeError, AttributeError) as error:
        raise PinsError(f"sources.toml: the source {tag} lacks {error}") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PinsError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PinsError(f"{path.name}: {error}") from None
