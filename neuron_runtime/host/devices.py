"""Neuron devices: their nodes in /dev, what the driver tells in sysfs, what neuron-ls lists."""

from __future__ import annotations

import json
import re
from typing import Any

from neuron_runtime.host.host import Host
from neuron_runtime.host.missing import Facts, NotFoundHere

SYSFS = "/sys/devices/virtual/neuron_device"
_KEPT = (
    "neuron_device",
    "bdf",
    "nc_count",
    "logical_neuroncore_config",
    "memory_size",
    "neuroncore_ids",
    "connected_to",
)


def probe_devices(host: Host) -> Facts:
    """`nodes`, `sysfs` and `neuron_ls`, each a list; `family` (such as trn2) and `lnc` where one of them tells."""
    facts = Facts()
    nodes = facts.take("nodes", lambda: _nodes(host))
    sysfs = facts.take("sysfs", lambda: _sysfs(host))
    listed = facts.take("neuron_ls", lambda: _neuron_ls(host))
    if nodes is None and sysfs is None and listed is None:
        raise NotFoundHere("; ".join(facts.reasons.values()))
    types = [device["instance_type"] for device in sysfs or [] if device["instance_type"]]
    facts.put("family", family_of(types[0]) if types else None)
    counts = [device["logical_neuroncore_config"] for device in listed or []]
    facts.put("lnc", counts[0] if counts else None)
    facts.put("count", max(len(nodes or []), len(sysfs or []), len(listed or [])))
    return facts


def family_of(instance_type: str) -> str | None:
    """`trn2` of `Trn2`, `trn2.48xlarge` and `trn2u.48xlarge`; None for a machine without Neuron devices."""
    found = re.match(r"(trn|inf)\d+", instance_type.lower())
    return found[0] if found else None


def _nodes(host: Host) -> list[str]:
    names = [name for name in host.names("/dev") if re.fullmatch(r"neuron\d+", name)]
    if not names:
        raise NotFoundHere("there is no /dev/neuron0")
    return [f"/dev/{name}" for name in sorted(names, key=lambda name: int(name[6:]))]


def _sysfs(host: Host) -> list[dict[str, Any]]:
    names = [name for name in host.names(SYSFS) if re.fullmatch(r"neuron\d+", name)]
    if not names:
        raise NotFoundHere(f"{SYSFS} is empty")
    return [_sysfs_device(host, int(name[6:])) for name in sorted(names, key=lambda name: int(name[6:]))]


def _sysfs_device(host: Host, number: int) -> dict[str, Any]:
    folder = f"{SYSFS}/neuron{number}"

    def read(name: str) -> str | None:
        try:
            return host.text(f"{folder}/{name}") or None
        except NotFoundHere:
            return None

    cores = read("core_count")
    return {
        "neuron_device": number,
        "core_count": int(cores) if cores and cores.isdecimal() else None,
        "device_name": read("info/architecture/device_name"),
        "instance_type": read("info/architecture/instance_type"),
        "arch_type": read("info/architecture/arch_type"),
    }


def _neuron_ls(host: Host) -> list[dict[str, Any]]:
    """The documented keys of `neuron-ls --json-output`; a key that the tool left out is None."""
    text = host.run(["neuron-ls", "--json-output"])
    try:
        devices = json.loads(text)
    except ValueError:
        raise NotFoundHere(f"`neuron-ls --json-output` printed no JSON: {text[:80]!r}") from None
    if not isinstance(devices, list) or not all(isinstance(device, dict) for device in devices):
        raise NotFoundHere("`neuron-ls --json-output` printed something other than a list of devices")
    return [{key: device.get(key) for key in _KEPT} | {"processes": _processes(device)} for device in devices]


def _processes(device: dict[str, Any]) -> list[dict[str, Any]]:
    users = device.get("neuron_processes") or []
    return [
        {key: user.get(key) for key in ("pid", "command", "neuron_runtime_version")}
        for user in users
        if isinstance(user, dict)
    ]
