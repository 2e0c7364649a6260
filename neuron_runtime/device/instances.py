"""The instance types the simulator knows, with their documented chips, cores and memory."""

from __future__ import annotations

from dataclasses import dataclass

from neuron_runtime.errors import NeuronEnvError

GIB = 1 << 30
DEFAULT_INSTANCE_TYPE = "trn2.3xlarge"


@dataclass(frozen=True, slots=True)
class InstanceType:
    """One EC2 instance type. Memory in bytes; `torus` is the chip grid (rows, columns) NeuronLink closes."""

    name: str
    target: str
    chips: int
    physical_cores_per_chip: int
    hbm_per_chip: int
    torus: tuple[int, int]
    device_type: str
    device_version: str
    neuroncore_version: str
    default_lnc: int = 2

    def neighbours(self, chip: int) -> tuple[int, ...]:
        """Chips one NeuronLink away, ascending; a ring of two counts its one neighbour once."""
        rows, columns = self.torus
        row, column = divmod(chip, columns)
        around = {
            ((row - 1) % rows) * columns + column,
            ((row + 1) % rows) * columns + column,
            row * columns + (column - 1) % columns,
            row * columns + (column + 1) % columns,
        }
        return tuple(sorted(around - {chip}))


# Sources: the Trainium2 and Trainium3 architecture pages and the neuron-ls and neuron-monitor guides.
# trn3.48xlarge: four chips a server follow from the Trn3 UltraServer figures (144 chips in 36 servers).
INSTANCE_TYPES = {
    t.name: t
    for t in (
        InstanceType("trn2.3xlarge", "trn2", 1, 8, 96 * GIB, (1, 1), "trainium2", "v4", "v3d"),
        InstanceType("trn2.48xlarge", "trn2", 16, 8, 96 * GIB, (4, 4), "trainium2", "v4", "v3d"),
        InstanceType("trn3.48xlarge", "trn3", 4, 8, 144 * GIB, (1, 4), "trainium3", "v5", "v4"),
    )
}


@dataclass(frozen=True, slots=True)
class Machine:
    """An instance type under one logical NeuronCore configuration (LNC): what programs see."""

    instance: InstanceType
    lnc: int

    @classmethod
    def of(cls, instance_type: str = DEFAULT_INSTANCE_TYPE, lnc: int | None = None) -> Machine:
        """Raises NeuronEnvError naming the known types, or the LNC values allowed."""
        instance = INSTANCE_TYPES.get(instance_type)
        if instance is None:
            raise NeuronEnvError(
                f"unknown instance type `{instance_type}`",
                hint=f"choose one of: {', '.join(INSTANCE_TYPES)}",
            )
        chosen = instance.default_lnc if lnc is None else lnc
        if chosen not in (1, 2):
            raise NeuronEnvError(
                f"logical NeuronCore configuration must be 1 or 2, not {chosen}",
                hint="set `NEURON_LOGICAL_NC_CONFIG` to 1 or 2, or unset it",
            )
        return cls(instance, chosen)

    @property
    def cores_per_chip(self) -> int:
        return self.instance.physical_cores_per_chip // self.lnc

    @property
    def core_count(self) -> int:
        """Logical NeuronCores of the whole instance; they are numbered from 0 across chips."""
        return self.instance.chips * self.cores_per_chip

    @property
    def hbm_per_core(self) -> int:
        """Bytes of HBM a logical core owns: its chip's memory in equal shares."""
        return self.instance.hbm_per_chip // self.cores_per_chip

    def chip_of(self, core: int) -> int:
        return core // self.cores_per_chip

    def cores_of(self, chip: int) -> range:
        return range(chip * self.cores_per_chip, (chip + 1) * self.cores_per_chip)
