"""A host's versions beside those of a set."""

from __future__ import annotations

from collections.abc import Iterator

from neuron_runtime.pins.catalog import Catalog
from neuron_runtime.pins.commands import pip_install, system_install
from neuron_runtime.pins.finding import Finding, Severity
from neuron_runtime.pins.observed import Observed
from neuron_runtime.pins.pinset import DRIVER, NEEDED_SYSTEM, USEFUL_SYSTEM, PinSet
from neuron_runtime.pins.versions import matches, newer, plain

# What follows from a version that is not the set's.
_CONSEQUENCES = {
    "torch": "torch-neuronx is built against one torch: with another the import fails on undefined symbols",
    "torch-neuronx": "operators, defaults and the graphs that reach the compiler differ between releases",
    "neuronx-cc": "another compiler makes other NEFFs, so what a fleet's cache holds may not be found",
    "nki": "kernels are compiled by it, and torch-neuronx imports it when it loads",
    "aws-neuronx-runtime-lib": "a NEFF may be of a version that this runtime does not load",
    "aws-neuronx-collectives": "the runtime loads it for every collective: the pair was released together",
    DRIVER: "each runtime asks for a minimum of the driver, and a driver for one of the runtime",
}
_MISSING = {
    "torch": "there is nothing to run",
    "torch-neuronx": "PyTorch knows no Neuron device",
    "neuronx-cc": "nothing compiles: `neuronx-cc` is started by name",
    "nki": "torch-neuronx imports it when it loads, so `import torch` fails",
    "aws-neuronx-runtime-lib": "there is no libnrt.so to load",
    "aws-neuronx-collectives": "programs on more than one core fail",
    "aws-neuronx-tools": "there are no neuron-ls, neuron-top and neuron-monitor",
    DRIVER: "there are no /dev/neuron*: `Unable to determine Neuron Driver version`",
}
_OTHERWISE = "it was released for another SDK"


def compare_versions(observed: Observed, pins: PinSet, catalog: Catalog) -> Iterator[Finding]:
    """System packages first: what stands on them cannot be judged before."""
    if observed.build != "simulated":
        yield from _system(observed, pins)
    yield from _python(observed, pins, catalog)


def compared(observed: Observed, pins: PinSet) -> list[tuple[str, str, str | None, bool]]:
    """Each component that was looked at: name, pin, version found, and whether they agree."""
    rows = []
    for name, pin in pins.python.items():
        version = observed.python_packages.get(name)
        if observed.build == "simulated" and name != "torch":
            continue
        if version is not None or name in pins.needed_python:
            rows.append((name, pin, version, version is not None and matches(version, pin)))
    if observed.system_packages is not None and observed.build != "simulated":
        for name, pin in pins.system.items():
            version = _system_version(observed, name)
            if version is not None or (name in NEEDED_SYSTEM and not _not_ours(observed, name)):
                rows.append((name, pin, version, version is not None and matches(version, pin)))
    if observed.driver_missing and not observed.container:
        rows = [(n, pin, f"{v} (not loaded)" if v and n == DRIVER else v, ok and n != DRIVER) for n, pin, v, ok in rows]
    return rows


def _python(observed: Observed, pins: PinSet, catalog: Catalog) -> Iterator[Finding]:
    for name, pin in pins.python.items():
        version = observed.python_packages.get(name)
        if observed.build == "simulated" and name != "torch":
            continue
        if version is None and name not in pins.needed_python:
            continue
        if version is not None and matches(version, pin):
            continue
        remedy = pip_install(catalog.repositories, {name: pin})
        yield _finding(name, pin, version, remedy)


def _system(observed: Observed, pins: PinSet) -> Iterator[Finding]:
    if observed.driver_missing and not observed.container:
        installed = (observed.system_packages or {}).get(DRIVER)
        yield Finding(
            "driver-missing",
            Severity.PROBLEM,
            DRIVER,
            f"{installed} installed, not loaded" if installed else None,
            pins.system.get(DRIVER, "any"),
            f"{_MISSING[DRIVER]} ({observed.driver_missing})",
            "sudo modprobe neuron; where that fails, build it for this kernel: sudo dkms autoinstall"
            if installed
            else system_install({DRIVER: pins.system[DRIVER]} if DRIVER in pins.system else {}, observed.manager),
        )
    if observed.system_packages is None:
        return
    for name, pin in pins.system.items():
        version = _system_version(observed, name)
        if (version is not None and matches(version, pin)) or _not_ours(observed, name):
            continue
        if version is None and (
            name not in (*NEEDED_SYSTEM, *USEFUL_SYSTEM) or (name == DRIVER and observed.driver_missing)
        ):
            continue
        yield _finding(name, pin, version, system_install({name: pin}, observed.manager))


def _system_version(observed: Observed, name: str) -> str | None:
    if name == DRIVER and observed.driver is not None:
        return observed.driver
    return (observed.system_packages or {}).get(name)


def _not_ours(observed: Observed, name: str) -> bool:
    """The driver inside a container: the host's, whatever it is."""
    return name == DRIVER and observed.container


def _finding(name: str, pin: str, version: str | None, remedy: str) -> Finding:
    if version is None:
        severity = Severity.NOTE if name in USEFUL_SYSTEM else Severity.PROBLEM
        return Finding(f"missing:{name}", severity, name, None, pin, _MISSING.get(name, _OTHERWISE), remedy)
    age = {True: "newer", False: "older", None: "another"}[newer(version, pin)]
    consequence = f"{age} than pinned: {_CONSEQUENCES.get(name, _OTHERWISE)}"
    if age == "another":
        consequence = _CONSEQUENCES.get(name, _OTHERWISE)
    return Finding(f"version:{name}", Severity.PROBLEM, name, plain(version), pin, consequence, remedy)
