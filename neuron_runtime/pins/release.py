"""One release of the Neuron SDK: its components, the builds of torch-neuronx in it, and what needs what."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from neuron_runtime.pins.errors import PinsError
from neuron_runtime.pins.versions import order, series

SCHEMA = 1
Kind = Literal["native", "xla"]


@dataclass(frozen=True, slots=True)
class Source:
    """Where a fact was read. `date` is a day or a month."""

    tag: str
    title: str
    date: str
    trust: str
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Component:
    """A package of the release; several versions where it holds several lines of one."""

    name: str
    kind: Literal["system", "python"]
    versions: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True)
class Build:
    """torch-neuronx for one torch. None where nobody has said: for which Python, chips, systems its wheels are.

    sources: the tag for each fact
    """

    kind: Kind
    torch: str
    torch_neuronx: str
    sources: Mapping[str, str]
    python: tuple[str, ...] | None = None
    families: tuple[str, ...] | None = None
    wheels: tuple[str, ...] | None = None
    glibc: str | None = None


@dataclass(frozen=True, slots=True)
class Requirement:
    """Where `component` has the pinned `version`, `needs` must be `minimum` or newer."""

    component: str
    version: str
    needs: str
    minimum: str
    source: str


@dataclass(frozen=True, slots=True)
class Release:
    """`date` is None and `components` empty where they are not known."""

    sdk: str
    source: str
    date: datetime.date | None = None
    notes: tuple[str, ...] = ()
    components: tuple[Component, ...] = ()
    builds: tuple[Build, ...] = ()
    requires: tuple[Requirement, ...] = ()

    def component(self, name: str) -> Component | None:
        return next((component for component in self.components if component.name == name), None)

    @classmethod
    def parse(cls, document: Mapping[str, Any], sources: Mapping[str, Source], where: str) -> Release:
        """Raises PinsError that names the file and the fact."""
        read = _Reader(where, sources)
        known = {"schema", "sdk", "date", "source", "notes", "component", "build", "requires"}
        read.only(document, known, "the release")
        if document.get("schema") != SCHEMA:
            raise PinsError(f"{where}: schema {document.get('schema')!r} is not {SCHEMA}", hint="update neuron-env")
        date = document.get("date")
        if date is not None and not isinstance(date, datetime.date):
            raise PinsError(f"{where}: `date` is not a date: {date!r}")
        components = tuple(read.component(item) for item in document.get("component", []))
        names = [component.name for component in components]
        if len(names) != len(set(names)):
            raise PinsError(f"{where}: a component is listed twice")
        release = cls(
            sdk=read.version(document, "sdk"),
            source=read.tag(document.get("source")),
            date=date,
            notes=tuple(document.get("notes", [])),
            components=components,
            builds=tuple(read.build(item) for item in document.get("build", [])),
            requires=tuple(read.requirement(item) for item in document.get("requires", [])),
        )
        for requirement in release.requires:
            for name in (requirement.component, requirement.needs):
                if release.component(name) is None:
                    raise PinsError(f"{where}: a requirement is about {name}, which is no component of the release")
        return release


class _Reader:
    def __init__(self, where: str, sources: Mapping[str, Source]) -> None:
        self.where = where
        self.sources = sources

    def only(self, table: Mapping[str, Any], known: set[str], what: str) -> None:
        if unknown := table.keys() - known:
            raise PinsError(f"{self.where}: {what} has the unknown key {sorted(unknown)[0]!r}")

    def text(self, table: Mapping[str, Any], key: str) -> str:
        value = table.get(key)
        if not isinstance(value, str) or not value:
            raise PinsError(f"{self.where}: `{key}` is missing or no text in {dict(table)!r}")
        return value

    def version(self, table: Mapping[str, Any], key: str) -> str:
        return self._checked(self.text(table, key))

    def versions(self, table: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
        texts = self.texts(table, key)
        return None if texts is None else tuple(map(self._checked, texts))

    def texts(self, table: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
        values = table.get(key)
        if values is None:
            return None
        if not isinstance(values, list) or not values or not all(isinstance(value, str) for value in values):
            raise PinsError(f"{self.where}: `{key}` is no list of texts: {values!r}")
        return tuple(values)

    def tag(self, tag: object) -> str:
        if not isinstance(tag, str) or tag not in self.sources:
            raise PinsError(f"{self.where}: no such source: {tag!r}", hint="sources are listed in sources.toml")
        return tag

    def component(self, table: Mapping[str, Any]) -> Component:
        self.only(table, {"name", "kind", "versions", "source"}, "a component")
        kind = table.get("kind")
        if kind not in ("system", "python"):
            raise PinsError(f"{self.where}: a component's kind is system or python, not {kind!r}")
        versions = self.versions(table, "versions")
        if versions is None:
            raise PinsError(f"{self.where}: a component has no versions: leave it out where they are not known")
        return Component(self.text(table, "name"), kind, versions, self.tag(table.get("source")))

    def build(self, table: Mapping[str, Any]) -> Build:
        optional = {"python", "families", "wheels", "glibc"}
        self.only(table, {"kind", "torch", "torch-neuronx", "sources"} | optional, "a build")
        kind = table.get("kind")
        if kind not in ("native", "xla"):
            raise PinsError(f"{self.where}: a build's kind is native or xla, not {kind!r}")
        sources = {str(fact): self.tag(tag) for fact, tag in dict(table.get("sources", {})).items()}
        if missing := table.keys() - {"kind", "sources"} - sources.keys():
            raise PinsError(f"{self.where}: a build names no source for {sorted(missing)[0]!r}")
        build = Build(
            kind=kind,
            torch=self.version(table, "torch"),
            torch_neuronx=self.version(table, "torch-neuronx"),
            sources=sources,
            python=self.versions(table, "python"),
            families=self.texts(table, "families"),
            wheels=self.texts(table, "wheels"),
            glibc=self.version(table, "glibc") if "glibc" in table else None,
        )
        if series(build.torch) != series(build.torch_neuronx):
            raise PinsError(f"{self.where}: torch {build.torch} and torch-neuronx {build.torch_neuronx} do not fit")
        return build

    def requirement(self, table: Mapping[str, Any]) -> Requirement:
        self.only(table, {"component", "version", "needs", "at_least", "source"}, "a requirement")
        return Requirement(
            self.text(table, "component"),
            self.version(table, "version"),
            self.text(table, "needs"),
            self.version(table, "at_least"),
            self.tag(table.get("source")),
        )

    def _checked(self, text: str) -> str:
        try:
            order(text)
        except ValueError:
            raise PinsError(f"{self.where}: not a version: {text!r}") from None
        return text
