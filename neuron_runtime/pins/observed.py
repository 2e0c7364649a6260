"""What a host, an image or a list of packages has of the things that pins are about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from neuron_runtime.host.packages import torch_neuronx_build
from neuron_runtime.host.report import HostReport


@dataclass(frozen=True, slots=True)
class Observed:
    """None stands for what cannot be seen from there, an empty dictionary for nothing installed.

    source: what was looked at, for messages
    python_packages, system_packages: versions by name
    hidden: further copies of a package that another one hides, as `version in directory`
    driver: version of the loaded kernel module; driver_missing: why there is none
    distribution: such as `ubuntu-26.04`
    family: of the chips, such as `trn2`
    torch_build: `cpu`, `cu130`
    compiler, prefix: the neuronx-cc that PATH finds, and the Python environment
    container: whether it is one, where the driver is the host's business
    """

    source: str
    python_packages: Mapping[str, str]
    system_packages: Mapping[str, str] | None = None
    hidden: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    driver: str | None = None
    driver_missing: str | None = None
    driver_on_disk: str | None = None
    python: str | None = None
    distribution: str | None = None
    glibc: str | None = None
    architecture: str | None = None
    family: str | None = None
    torch_build: str | None = None
    compiler: str | None = None
    prefix: str | None = None
    container: bool = False
    live: bool = False

    @property
    def build(self) -> str | None:
        """`native`, `xla`, `placeholder` or `simulated`; None without a torch-neuronx."""
        if version := self.python_packages.get("torch-neuronx"):
            return torch_neuronx_build(version)
        return "simulated" if "torch-neuronx-sim" in self.python_packages else None

    @property
    def manager(self) -> str:
        """The package manager of the system: `apt` or `dnf`."""
        return "dnf" if (self.distribution or "").startswith(("amzn", "rhel", "rocky", "fedora", "centos")) else "apt"


def observe_report(report: HostReport, source: str, *, image: bool = False) -> Observed:
    """What a host's report says. Of an image, the driver is none of its business."""
    sections = report.sections
    packages = sections.get("packages") or {}
    system = sections.get("system") or {}
    driver = sections.get("driver") or {}
    runtime = sections.get("runtime") or {}
    python = sections.get("python") or {}
    named = [str(system[key]) for key in ("os_id", "os_version") if system.get(key)]
    version = python.get("version")
    return Observed(
        source=source,
        python_packages={name: package["version"] for name, package in packages.items()},
        system_packages=_system_packages(runtime),
        hidden={
            name: tuple(map(_copy, about["hidden_copies"]))
            for name, about in packages.items()
            if about["hidden_copies"]
        },
        driver=driver.get("version"),
        driver_missing=None if image or driver.get("version") else _why_no_driver(report),
        driver_on_disk=driver.get("installed_version"),
        python=".".join(version.split(".")[:2]) if version else None,
        distribution="-".join(named) or None,
        glibc=system.get("glibc"),
        architecture=system.get("architecture"),
        family=None if image else report.family,
        torch_build=packages.get("torch", {}).get("build"),
        compiler=runtime.get("compiler"),
        prefix=python.get("prefix"),
        container=image or bool((sections.get("surroundings") or {}).get("container")),
        live=not image,
    )


def _system_packages(runtime: Mapping[str, Any]) -> Mapping[str, str] | None:
    packages = runtime.get("packages")
    return None if packages is None else dict(packages)


def _why_no_driver(report: HostReport) -> str | None:
    return report.not_found.get("driver") or report.not_found.get("driver.version")


def _copy(about: Mapping[str, Any]) -> str:
    return f"{about['version']} in {about['location']}"
