"""neuron-ls: the devices of the (simulated) instance and the processes on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from neuron_runtime.device.cores import describe_cores
from neuron_runtime.device.instances import GIB, Machine
from neuron_runtime.version import RUNTIME_VERSION

SIMULATED_INSTANCE_ID = "i-simulated"


def machine_of(snapshot: dict[str, Any]) -> Machine:
    return Machine.of(snapshot["instance_type"], snapshot["lnc"])


def list_devices(machine: Machine, processes: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The JSON of `neuron-ls -j`: one object a device, with its keys. `bdf` says that the device is simulated."""
    return [
        {
            "neuron_device": chip,
            "bdf": f"simulated:{chip:02x}:00.0",
            "cpu_affinity": "",
            "numa_node": "",
            "connected_to": list(machine.instance.neighbours(chip)),
            "nc_count": machine.cores_per_chip,
            "logical_neuroncore_config": machine.lnc,
            "memory_size": machine.instance.hbm_per_chip,
            "neuroncore_ids": list(machine.cores_of(chip)),
            "neuron_processes": [
                {
                    "pid": process["pid"],
                    "command": process["command"],
                    "neuron_runtime_version": RUNTIME_VERSION,
                }
                for process in processes
                if _cores_on(machine, chip, process)
            ],
        }
        for chip in range(machine.instance.chips)
    ]


def listing_header(machine: Machine) -> list[str]:
    """The lines above the table of neuron-ls."""
    return [
        f"instance-type: {machine.instance.name} (simulated)",
        f"instance-id: {SIMULATED_INSTANCE_ID}",
        f"logical-neuroncore-config: {machine.lnc}",
    ]


DEVICE_COLUMNS = (
    "NEURON\nDEVICE",
    "NEURON\nCORES",
    "NEURON\nCORE IDS",
    "NEURON\nMEMORY",
    "CONNECTED\nDEVICES",
    "PCI\nBDF",
)
PROCESS_COLUMNS = ("\nPID", "\nCOMMAND", "RUNTIME\nVERSION")


def listing_rows(machine: Machine, processes: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """The rows of the neuron-ls table: a device a row, and a further row for each further process on it."""
    rows: list[tuple[str, ...]] = []
    for device in list_devices(machine, processes):
        chip = device["neuron_device"]
        facts = (
            str(chip),
            str(device["nc_count"]),
            describe_cores(device["neuroncore_ids"]),
            f"{device['memory_size'] // GIB} GB",
            ", ".join(map(str, device["connected_to"])),
            str(device["bdf"]),
        )
        users: list[tuple[str, ...]] = [
            (str(p["pid"]), str(p["command"]), str(p["neuron_runtime_version"])) for p in device["neuron_processes"]
        ]
        for number, user in enumerate(users or [("", "", "")]):
            rows.append((facts if number == 0 else ("",) * len(facts)) + user)
    return rows


def _cores_on(machine: Machine, chip: int, process: dict[str, Any]) -> list[int]:
    return [core for core in map(int, process["cores"]) if machine.chip_of(core) == chip]
