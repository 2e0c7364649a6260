"""Combinations that install without a word and then do not work. Each trap is a function of what is there."""

from __future__ import annotations

from collections.abc import Iterator

from neuron_runtime.pins.catalog import Catalog
from neuron_runtime.pins.commands import pip_install, system_upgrade
from neuron_runtime.pins.finding import Finding, Severity
from neuron_runtime.pins.observed import Observed
from neuron_runtime.pins.pinset import DRIVER, RUNTIME, PinSet
from neuron_runtime.pins.versions import at_least, matches, series

_RELOAD = "sudo modprobe -r neuron && sudo modprobe neuron"


def find_traps(observed: Observed, pins: PinSet, catalog: Catalog) -> list[Finding]:
    """In the order in which they should be mended."""
    found = [
        *_wrong_machine(observed, pins),
        *_wrong_package(observed, pins, catalog),
        *_wrong_torch(observed, pins, catalog),
        *_no_wheel(observed, pins),
        *_requirements(observed, catalog),
        *_driver_on_disk(observed),
        *_foreign_compiler(observed),
    ]
    return list({finding.id: finding for finding in found}.values())


def _wrong_machine(observed: Observed, pins: PinSet) -> Iterator[Finding]:
    if observed.build in ("native", "xla") and observed.architecture not in (None, "x86_64"):
        yield Finding(
            "architecture",
            Severity.PROBLEM,
            "machine",
            observed.architecture,
            "x86_64",
            "the vendor builds nothing for it",
            "use an x86_64 machine, or the simulated device",
        )
    if observed.build != "native" or pins.build.kind != "native":
        return
    families = pins.build.families
    if families and observed.family and observed.family.startswith(("trn", "inf")) and observed.family not in families:
        yield Finding(
            "chip-not-supported",
            Severity.PROBLEM,
            "machine",
            observed.family,
            " or ".join(families),
            "the native torch-neuronx drives these chips alone: it imports and finds no device",
            "take a Trn2 or Trn3 instance, or the XLA build: `neuron-env pins install-command --torch 2.9`",
        )


def _wrong_package(observed: Observed, pins: PinSet, catalog: Catalog) -> Iterator[Finding]:
    version = observed.python_packages.get("torch-neuronx")
    install = pip_install(catalog.repositories, {name: pins.python[name] for name in pins.needed_python})
    if observed.build == "placeholder":
        yield Finding(
            "placeholder-package",
            Severity.PROBLEM,
            "torch-neuronx",
            version,
            pins.build.torch_neuronx,
            "this is the empty package that the public index has under the name; the wheels are in the vendor's index",
            f"python -m pip uninstall -y torch-neuronx && {install}",
        )
    if observed.build == "xla" and pins.build.kind == "native":
        yield Finding(
            "xla-build",
            Severity.PROBLEM,
            "torch-neuronx",
            version,
            pins.build.torch_neuronx,
            "the same name holds the XLA build: there is no device `neuron`, and both cannot be in one environment",
            f"python -m pip uninstall -y torch-neuronx torch-xla libneuronxla && {install}",
        )
    elif observed.build == "xla":
        yield Finding(
            "xla-build",
            Severity.NOTE,
            "torch-neuronx",
            version,
            "2.13 or newer for the native build",
            'this is the XLA build: programs use torch_xla, and `tensor.to("neuron")` does not work',
            "to change over: `neuron-env pins upgrade`",
        )
    for name, copies in observed.hidden.items():
        yield Finding(
            "two-copies",
            Severity.PROBLEM,
            name,
            "; ".join(copies),
            "one copy",
            f"which one is imported depends on the order of directories: {observed.python_packages[name]} comes first",
            f"python -m pip uninstall -y {name}, as often as it finds one, and install it again",
        )
    if version and "torch-neuronx-sim" in observed.python_packages:
        yield Finding(
            "simulated-and-real",
            Severity.PROBLEM,
            "torch-neuronx-sim",
            observed.python_packages["torch-neuronx-sim"],
            "not beside torch-neuronx",
            "both provide the module torch_neuronx: whichever was installed last has overwritten the other",
            f"python -m pip uninstall -y torch-neuronx-sim torch-neuronx && {install}",
        )
    elif observed.build == "simulated":
        yield Finding(
            "simulated",
            Severity.NOTE,
            "torch-neuronx-sim",
            observed.python_packages["torch-neuronx-sim"],
            "torch-neuronx on a Trainium host",
            "the device is simulated: only torch was compared",
            None,
        )


def _wrong_torch(observed: Observed, pins: PinSet, catalog: Catalog) -> Iterator[Finding]:
    torch, neuronx = (observed.python_packages.get(name) for name in ("torch", "torch-neuronx"))
    if torch and observed.torch_build and observed.torch_build.startswith(("cu", "rocm")):
        yield Finding(
            "torch-for-gpus",
            Severity.WARNING if observed.build == "simulated" else Severity.PROBLEM,
            "torch",
            torch,
            f"{pins.build.torch}+cpu",
            "this torch is built for GPUs: gigabytes that nothing uses, and not what torch-neuronx is built against",
            pip_install(catalog.repositories, {"torch": pins.build.torch}) + " --force-reinstall",
        )
    if torch and neuronx and observed.build in ("native", "xla") and series(torch) != series(neuronx):
        yield Finding(
            "torch-does-not-fit",
            Severity.PROBLEM,
            "torch",
            torch,
            f"{series(neuronx)}, as torch-neuronx {neuronx}",
            "torch-neuronx is built against one torch: with another the import fails on undefined symbols",
            pip_install(catalog.repositories, {"torch": series(neuronx), "torch-neuronx": f"{series(neuronx)}.*"}),
        )


def _no_wheel(observed: Observed, pins: PinSet) -> Iterator[Finding]:
    if observed.build == "simulated":
        return
    python, wheels, build = pins.build.python, pins.build.wheels, pins.build.kind
    if python and observed.python and observed.python not in python:
        yield Finding(
            "no-wheel-for-python",
            Severity.PROBLEM,
            "Python",
            observed.python,
            ", ".join(python),
            f"the {build} torch-neuronx {pins.build.torch_neuronx} has wheels for these alone",
            f"make an environment with another Python: `python{python[-1]} -m venv .venv`",
        )
    if wheels and observed.distribution and observed.distribution not in wheels:
        yield Finding(
            "no-wheel-for-system",
            Severity.WARNING,
            "operating system",
            observed.distribution,
            ", ".join(wheels),
            "the wheels are built for these alone; elsewhere it is a build from source or the vendor's AMI",
            "use an image of the vendor's: the system of the host need not match",
        )
    if pins.build.glibc and observed.glibc and not at_least(observed.glibc, pins.build.glibc):
        yield Finding(
            "glibc-too-old",
            Severity.PROBLEM,
            "glibc",
            observed.glibc,
            f"{pins.build.glibc} or newer",
            "PyTorch does not load: it wants a newer C library, as on Amazon Linux 2023",
            "use Ubuntu 24.04 or newer, as the host or in a container",
        )


def _requirements(observed: Observed, catalog: Catalog) -> Iterator[Finding]:
    installed = dict(observed.system_packages or {})
    if observed.driver:
        installed[DRIVER] = observed.driver  # what is loaded counts, not what is on disk
    for requirement in (requirement for release in catalog.releases for requirement in release.requires):
        version, needed = installed.get(requirement.component), installed.get(requirement.needs)
        if version is None or needed is None or not matches(version, requirement.version):
            continue
        if at_least(needed, requirement.minimum):
            continue
        about = {DRIVER: "driver", RUNTIME: "runtime"}.get(requirement.needs, requirement.needs)
        remedy = system_upgrade(requirement.needs, requirement.minimum, observed.manager)
        if requirement.needs == DRIVER:
            remedy = f"on the host: {remedy} && {_RELOAD}" if observed.container else f"{remedy} && {_RELOAD}"
        yield Finding(
            f"{about}-too-old",
            Severity.PROBLEM,
            requirement.needs,
            needed,
            f"{requirement.minimum} or newer",
            f"{requirement.component} {version} refuses to start with it",
            remedy,
        )


def _driver_on_disk(observed: Observed) -> Iterator[Finding]:
    on_disk, loaded = observed.driver_on_disk, observed.driver
    if on_disk and loaded and on_disk != loaded:
        yield Finding(
            "driver-not-reloaded",
            Severity.WARNING,
            DRIVER,
            f"{loaded} loaded",
            f"{on_disk}, which is installed",
            "the driver was changed and the old module still runs",
            f"{_RELOAD}, with no program on the devices, or reboot",
        )


def _foreign_compiler(observed: Observed) -> Iterator[Finding]:
    compiler, prefix = observed.compiler, observed.prefix
    if compiler and prefix and "neuronx-cc" in observed.python_packages and not compiler.startswith(f"{prefix}/"):
        yield Finding(
            "foreign-compiler",
            Severity.WARNING,
            "neuronx-cc",
            compiler,
            f"{prefix}/bin/neuronx-cc",
            "torch-neuronx takes the compiler that PATH finds, which belongs to another environment",
            f'activate the environment, or put it first: export PATH="{prefix}/bin:$PATH"',
        )
