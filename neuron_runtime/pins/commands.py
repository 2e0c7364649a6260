"""The commands that install a set, as people would type them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from neuron_runtime.pins.catalog import Repositories
from neuron_runtime.pins.pinset import DRIVER, NEEDED_SYSTEM, USEFUL_SYSTEM, PinSet
from neuron_runtime.pins.versions import specifier


def pip_install(repositories: Repositories, pins: Mapping[str, str], *, python: str = "python") -> str:
    """One command for all, so that pip resolves them together."""
    indexes = [part for index in repositories.pip_indexes for part in ("--extra-index-url", index)]
    return shlex.join(
        [python, "-m", "pip", "install", *indexes, *(f"{name}{specifier(pin)}" for name, pin in pins.items())]
    )


def system_install(pins: Mapping[str, str], manager: str = "apt") -> str:
    """For apt with the vendor's revision left open, which dpkg counts as part of the version."""
    if manager == "dnf":
        return "sudo dnf install -y " + " ".join(f"{name}-{pin}" for name, pin in pins.items())
    return "sudo apt-get install -y --allow-downgrades " + " ".join(f"'{name}={pin}*'" for name, pin in pins.items())


def system_upgrade(name: str, minimum: str, manager: str = "apt") -> str:
    """To any version of at least `minimum`; apt can only name a series, so it is that of the minimum."""
    if manager == "dnf":
        return f"sudo dnf install -y '{name} >= {minimum}'"
    return f"sudo apt-get install -y --allow-downgrades '{name}={minimum}.*'"


def repository_setup(repositories: Repositories) -> list[str]:
    """What makes the vendor's apt repository known to a system."""
    source = f"deb [signed-by={repositories.apt_keyring}] {repositories.apt_url} $VERSION_CODENAME main"
    return [
        f"curl -fsSL {repositories.apt_key} | sudo gpg --dearmor --yes -o {repositories.apt_keyring}",
        f'. /etc/os-release && echo "{source}" | sudo tee /etc/apt/sources.list.d/neuron.list',
        "sudo apt-get update",
    ]


def install_commands(
    repositories: Repositories, pins: PinSet, *, system: bool = True, python: bool = True, container: bool = False
) -> list[str]:
    """From nothing to a set, in order. In a container the driver is left out: it is the host's."""
    commands = []
    if system:
        wanted = [name for name in (*NEEDED_SYSTEM, *USEFUL_SYSTEM) if not (container and name == DRIVER)]
        chosen = {name: pins.system[name] for name in wanted if name in pins.system}
        commands += [*repository_setup(repositories), system_install(chosen)]
    if python:
        commands.append(pip_install(repositories, {name: pins.python[name] for name in pins.needed_python}))
    return commands
