"""This host's processor time and memory, from /proc, as neuron-monitor reports them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

_STATES = ("user", "nice", "system", "idle", "io_wait", "irq", "soft_irq")


@dataclass(frozen=True, slots=True)
class HostSample:
    """Clock ticks spent in each state since boot, and memory in bytes; empty where /proc does not tell."""

    ticks: tuple[int, ...]
    memory: dict[str, int]
    context_switches: int

    @classmethod
    def take(cls, proc: Path = Path("/proc")) -> HostSample:
        ticks: tuple[int, ...] = ()
        switches = 0
        for line in _lines(proc / "stat"):
            name, _, values = line.partition(" ")
            if name == "cpu":
                ticks = tuple(map(int, values.split()[: len(_STATES)]))
            elif name == "ctxt":
                switches = int(values)
        memory = {}
        for line in _lines(proc / "meminfo"):
            name, _, value = line.partition(":")
            memory[name] = int(value.split()[0]) * 1024
        return cls(ticks, memory, switches)

    def vcpu_usage(self, before: HostSample) -> dict[str, Any]:
        """Percent of all processors' time in each state since `before`."""
        spent = [now - then for now, then in zip(self.ticks, before.ticks, strict=False)]
        total = sum(spent) or 1
        return {
            "average_usage": {
                state: round(100 * ticks / total, 2) for state, ticks in zip(_STATES, spent, strict=False)
            },
            "usage_data": {},
            "context_switch_count": self.context_switches - before.context_switches,
        }

    def memory_info(self) -> dict[str, Any]:
        total = self.memory.get("MemTotal", 0)
        swap = self.memory.get("SwapTotal", 0)
        return {
            "memory_total_bytes": total,
            "memory_used_bytes": total - self.memory.get("MemAvailable", total),
            "swap_total_bytes": swap,
            "swap_used_bytes": swap - self.memory.get("SwapFree", swap),
        }


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
