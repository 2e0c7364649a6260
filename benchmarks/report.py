"""Timing in turn, and tables of the result."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence


def in_turn(
    candidates: Mapping[str, Callable[[], object]], rounds: int, warmup: int = 3, pause: float = 0.0
) -> dict[str, list[float]]:
    """Seconds of each candidate over `rounds`, called A B C A B C …, so that drift hits all alike.

    Thread pools spin for a while after their work. `pause` seconds before each call keep one candidate's threads out
    of the next one's time.
    """
    for _ in range(warmup):
        for call in candidates.values():
            call()
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, call in candidates.items():
            time.sleep(pause)
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return times


def ratio(times: Mapping[str, Sequence[float]], name: str, base: str) -> float:
    """The median of the ratios round by round."""
    return statistics.median(a / b for a, b in zip(times[name], times[base], strict=True))


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    made = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for at, column in enumerate(columns):
        made.add_column(column, justify="left" if at == 0 else "right", no_wrap=True)
    for row in rows:
        made.add_row(*row)
    Console(width=140).print(made)


def ms(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds) * 1e3:.2f} ms"


def us(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds) * 1e6:.1f} us"
