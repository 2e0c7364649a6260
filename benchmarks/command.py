"""`neuron-env --help` as a whole process. Goal: at most 0.15 s."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.report import in_turn, ms, ratio, table

ROUNDS = 20


def main() -> None:
    program = str(Path(sys.executable).with_name("neuron-env"))
    commands = {
        "neuron-env --help": [program, "--help"],
        "python -c 'import click'": [sys.executable, "-c", "import click"],
        "python -c pass": [sys.executable, "-c", "pass"],
    }
    times = in_turn(
        {
            name: lambda c=command: subprocess.run(c, capture_output=True, check=True)
            for name, command in commands.items()
        },
        ROUNDS,
    )
    rows = [
        (
            name,
            ms(times[name]),
            f"{ratio(times, name, 'python -c pass'):.2f}",
            "150 ms" if name.startswith("neuron") else "",
        )
        for name in commands
    ]
    table(("command", "median", "to python -c pass", "goal <="), rows)


if __name__ == "__main__":
    main()
