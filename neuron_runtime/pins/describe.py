"""A release as rows for people and as a document."""

from __future__ import annotations

from typing import Any

from neuron_runtime.pins.pinset import DRIVER, RUNTIME
from neuron_runtime.pins.release import Build, Release
from neuron_runtime.pins.versions import order

_UNKNOWN = "-"


def release_rows(release: Release) -> list[tuple[str, ...]]:
    """One row a build, one for a release without: the release's facts stand in the first."""
    facts = (
        release.sdk,
        str(release.date or _UNKNOWN),
        *(_versions(release, name) for name in (DRIVER, RUNTIME, "neuronx-cc", "nki")),
    )
    rows: list[tuple[str, ...]] = [
        (
            build.torch,
            build.kind,
            _series(build.python),
            ", ".join(build.families or ()) or _UNKNOWN,
        )
        for build in sorted(release.builds, key=lambda build: order(build.torch), reverse=True)
    ] or [(_UNKNOWN,) * 4]
    return [(facts if number == 0 else ("",) * len(facts)) + row for number, row in enumerate(rows)]


def fact_rows(release: Release) -> list[tuple[str, str, str]]:
    """Fact, value and source tag of everything that is known about a release."""
    rows = [("release date", str(release.date), release.source)] if release.date else []
    rows += [(component.name, " / ".join(component.versions), component.source) for component in release.components]
    for build in release.builds:
        name = f"torch {build.torch}"
        rows.append((name, f"torch-neuronx {build.torch_neuronx} ({build.kind})", build.sources["torch-neuronx"]))
        rows += [
            (f"{name}: {fact}", ", ".join(values), build.sources[fact])
            for fact, values in (("python", build.python), ("families", build.families), ("wheels", build.wheels))
            if values
        ]
        if build.glibc:
            rows.append((f"{name}: glibc", f"{build.glibc} or newer", build.sources["glibc"]))
    rows += [
        (f"{needed.component} {needed.version}", f"needs {needed.needs} {needed.minimum} or newer", needed.source)
        for needed in release.requires
    ]
    return rows or [("components", "not known", release.source)]


def release_document(release: Release) -> dict[str, Any]:
    """What is not known is null."""
    return {
        "sdk": release.sdk,
        "date": str(release.date) if release.date else None,
        "notes": list(release.notes),
        "components": [
            {"name": c.name, "kind": c.kind, "versions": list(c.versions), "source": c.source}
            for c in release.components
        ],
        "builds": [_build(build) for build in release.builds],
        "requires": [
            {"component": r.component, "version": r.version, "needs": r.needs, "minimum": r.minimum, "source": r.source}
            for r in release.requires
        ],
    }


def _build(build: Build) -> dict[str, Any]:
    return {
        "kind": build.kind,
        "torch": build.torch,
        "torch_neuronx": build.torch_neuronx,
        "python": build.python and list(build.python),
        "families": build.families and list(build.families),
        "wheels": build.wheels and list(build.wheels),
        "glibc": build.glibc,
        "sources": dict(build.sources),
    }


def _versions(release: Release, name: str) -> str:
    component = release.component(name)
    return " / ".join(component.versions) if component else _UNKNOWN


def _series(versions: tuple[str, ...] | None) -> str:
    return f"{versions[0]} to {versions[-1]}" if versions else _UNKNOWN
