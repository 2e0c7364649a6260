"""What the demo prints: tables and curves."""

from __future__ import annotations

import itertools

from instance import DemoFailedError, Instance
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

WIDTH = 100
CURVE = 24
LEVELS = "▁▂▃▄▅▆▇█"
TITLES = {"gpt": "GPT, 2 layers", "digits": "CNN, digits", "minilm": "MiniLM, 6 layers"}
TOLERANCE = 1e-3

console = Console(highlight=False, width=WIDTH)


def say(text: str, end: str = "\n") -> None:
    console.print(text, end=end, soft_wrap=True)


def require(held: bool, otherwise: str) -> None:
    if not held:
        raise DemoFailedError(otherwise)


def grid(*columns: str) -> Table:
    """A table whose columns are aligned to the right where their titles begin with a blank."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        table.add_column(column.strip(), justify="right" if column.startswith(" ") else "left", no_wrap=True)
    return table


def show(table: Table) -> None:
    console.print(Padding(table, (0, 0, 0, 3)))


def show_compiles(instances: list[Instance]) -> None:
    table = grid("instance", "model", " compiled here", " from the cache", " first step", " a later one")
    for instance in instances:
        for name, found in sorted(instance.models.items(), key=lambda item: item[1]["first_at"]):
            counts = found["counts"]
            table.add_row(
                instance.name,
                TITLES[name],
                str(int(counts["compiles"])),
                str(int(counts["hits"])),
                f"at {found['first_at'] - instance.started:.1f} s",
                f"{found['pace'] * 1e3:.0f} ms",
            )
    show(table)


def show_losses(instance: Instance) -> None:
    """The curves of an instance, each above the CPU's."""
    table = grid("model", "where", "loss, step by step", " first", " last", " relative difference")
    for name in ("gpt", "digits"):
        found = instance.models[name]
        device, cpu = ([step[0] for step in found[key]] for key in ("values", "expected"))
        off = max(abs(a - b) / b for a, b in zip(device, cpu, strict=True))
        require(off < TOLERANCE, f"the losses of {TITLES[name]} differ from the CPU's by {off:.1e}")
        for where, losses in (("device", device), ("CPU", cpu)):
            table.add_row(
                TITLES[name] if where == "device" else "",
                where,
                f"[green]{curve(losses)}[/]",
                f"{losses[0]:.4f}",
                f"{losses[-1]:.4f}",
                f"{off:.0e}" if where == "CPU" else "",
            )
    show(table)
    found = instance.models["minilm"]
    off = max(abs(a - b) for a, b in zip(found["values"][-1], found["expected"][-1], strict=True))
    require(off < TOLERANCE, f"the embeddings differ from the CPU's by {off:.1e}")
    alike = "  ".join(f"{value:.2f}" for value in found["values"][-1])
    say(f"   MiniLM: four pairs of sentences are alike by {alike}, as on the CPU ({off:.0e})")


def show_starts(starts: dict[str, float]) -> None:
    """Seconds, each beside a bar."""
    longest = max(starts.values())
    for what, took in starts.items():
        bar = "█" * max(1, round(took / longest * 40))
        say(f"   {what:22}{took:6.1f} s  [green]{bar}[/]")


def curve(values: list[float]) -> str:
    """The values as blocks, from the lowest to the highest; a block is the mean of its share of them."""
    width = min(CURVE, len(values))
    edges = [len(values) * i // width for i in range(width + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(edges)]
    low, high = min(means), max(means)
    scale = (len(LEVELS) - 1) / (high - low) if high > low else 0
    return "".join(LEVELS[round((mean - low) * scale)] for mean in means)


def fallbacks(instances: list[Instance]) -> str:
    """The operators that ran on the host, by name."""
    names = {name for i in instances for found in i.models.values() for name in found["fallbacks"]}
    return ", ".join(sorted(names)) or "none"


def total(instances: list[Instance], counter: str) -> float:
    return sum(found["counts"][counter] for i in instances for found in i.models.values())


def first_step(instance: Instance) -> float:
    """Seconds from the start of the process to the first loss."""
    return min(float(found["first_at"]) for found in instance.models.values()) - instance.started
