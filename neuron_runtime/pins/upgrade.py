"""From one set to another: what changes, what that means, what to type."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from neuron_runtime.pins.catalog import Catalog
from neuron_runtime.pins.commands import pip_install, system_install
from neuron_runtime.pins.pinset import DRIVER, NEEDED_SYSTEM, USEFUL_SYSTEM, PinSet
from neuron_runtime.pins.versions import newer


@dataclass(frozen=True, slots=True)
class Change:
    """A component's version before and after; None where the set does not have it."""

    component: str
    before: str | None
    after: str | None

    @property
    def direction(self) -> str:
        if self.before is None or self.after is None:
            return "new" if self.before is None else "gone"
        return "up" if newer(self.after, self.before) else "down"


@dataclass(frozen=True, slots=True)
class Upgrade:
    before: PinSet
    after: PinSet
    changes: tuple[Change, ...]
    consequences: tuple[str, ...]
    commands: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "from": {"sdk": self.before.release.sdk, "torch": self.before.build.torch},
            "to": {"sdk": self.after.release.sdk, "torch": self.after.build.torch},
            "changes": [
                {"component": c.component, "from": c.before, "to": c.after, "direction": c.direction}
                for c in self.changes
            ],
            "consequences": list(self.consequences),
            "commands": list(self.commands),
        }


def plan_upgrade(before: PinSet, after: PinSet, catalog: Catalog, manager: str = "apt") -> Upgrade:
    """Changes in the order in which they are made: driver, runtime and tools, Python packages."""
    changes = tuple(
        Change(name, old.get(name), new.get(name))
        for old, new in ((before.system, after.system), (before.python, after.python))
        for name in dict.fromkeys([*new, *old])
        if old.get(name) != new.get(name)
    )
    return Upgrade(
        before,
        after,
        changes,
        tuple(_consequences(before, after, changes)),
        tuple(_commands(before, after, changes, catalog, manager)),
    )


def _consequences(before: PinSet, after: PinSet, changes: tuple[Change, ...]) -> list[str]:
    changed = {change.component for change in changes}
    said = []
    if before.build.kind == "xla" and after.build.kind == "native":
        said.append(
            "programs change: torch_xla and `xm.mark_step()` go, the device is `neuron`, and Trn1 is left behind"
        )
        said.append(
            "the cache of libneuronxla is of no use to the native build, which has a layout and keys of its own"
        )
    if before.build.kind == "native" and after.build.kind == "xla":
        said.append("programs change: there is no device `neuron`, they go through torch_xla")
    if "neuronx-cc" in changed:
        said.append(
            "the compiler changes: count on every graph being compiled anew, and fill the cache before the fleet moves"
        )
    if "torch" in changed:
        said.append("torch changes: captured graphs differ, whatever else is built against torch has to change with it")
    said += [
        f"{needed.component} {needed.version} needs {needed.needs} {needed.minimum} or newer: change that first"
        for needed in after.release.requires
        if needed.component in after.system
    ]
    for name, values in (
        ("Python", (before.build.python, after.build.python)),
        ("chips", (before.build.families, after.build.families)),
    ):
        old, new = values
        if new and old != new:
            said.append(f"{name}: {', '.join(old) if old else 'not stated'} before, {', '.join(new)} after")
    if after.build.wheels and before.build.wheels != after.build.wheels:
        said.append(f"wheels exist for {', '.join(after.build.wheels)} alone")
    return said


def _commands(before: PinSet, after: PinSet, changes: tuple[Change, ...], catalog: Catalog, manager: str) -> list[str]:
    changed = {change.component for change in changes}
    commands = []
    if DRIVER in changed and DRIVER in after.system:
        commands.append(system_install({DRIVER: after.system[DRIVER]}, manager))
        commands.append("sudo modprobe -r neuron && sudo modprobe neuron")
    rest = {
        n: after.system[n]
        for n in (*NEEDED_SYSTEM, *USEFUL_SYSTEM)
        if n != DRIVER and n in changed & after.system.keys()
    }
    if rest:
        commands.append(system_install(rest, manager))
    if before.build.kind != after.build.kind:
        gone = ["torch-neuronx", *(["torch-xla", "libneuronxla"] if before.build.kind == "xla" else ["nki"])]
        commands.append(shlex.join(["python", "-m", "pip", "uninstall", "-y", *gone]))
    python = {name: after.python[name] for name in after.needed_python if name in changed}
    if python:
        commands.append(pip_install(catalog.repositories, python))
    if commands:
        commands.append("neuron-env pins check" + f" --sdk {after.release.sdk} --torch {after.build.torch}")
    return commands
