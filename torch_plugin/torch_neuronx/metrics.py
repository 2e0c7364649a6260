"""Counters of compiled graphs, switched on by TORCH_NEURONX_METRICS_ENABLED.

The names of counters and metrics are TorchNeuron's. How to read them is this package's own: `counters()`, `metrics()`,
and a CSV file for each table that TORCH_NEURONX_ENABLED_METRIC_TABLES names, written when the process ends.
"""

from __future__ import annotations

import atexit
import csv
import functools
import logging
import os
import tempfile
import threading
from collections import defaultdict
from pathlib import Path

log = logging.getLogger("torch_neuronx")

TABLE = "CompilationCache"
COUNTERS = (
    "InMemoryHits",
    "InMemoryMisses",
    "PersistentHits",
    "PersistentMisses",
    "TotalCompilations",
    "Evictions",
)
METRICS = ("NeffSize", "CompilationTime", "MemoryUsage")

_lock = threading.Lock()
_counts: dict[str, int] = defaultdict(int)
_values: dict[str, list[float]] = defaultdict(list)


def is_enabled() -> bool:
    """Read when something is counted, not at import."""
    return os.environ.get("TORCH_NEURONX_METRICS_ENABLED", "").lower() in ("1", "true", "yes")


def counters() -> dict[str, int]:
    """By full name, such as `CompilationCache.PersistentHits`. Nothing is ever evicted here."""
    with _lock:
        return {f"{TABLE}.{name}": _counts[name] for name in COUNTERS}


def metrics() -> dict[str, list[float]]:
    """By full name, in order: bytes of each NEFF, seconds of each compile, bytes of all NEFFs after each was loaded."""
    with _lock:
        return {f"{TABLE}.{name}": list(_values[name]) for name in METRICS}


def reset() -> None:
    """Begins at nothing again."""
    with _lock:
        _counts.clear()
        _values.clear()


def count(name: str) -> None:
    """One more; nothing unless switched on."""
    if is_enabled():
        _export_at_exit()
        with _lock:
            _counts[name] += 1


def add(name: str, value: float) -> None:
    """One more value; nothing unless switched on."""
    if is_enabled():
        _export_at_exit()
        with _lock:
            _values[name].append(value)


def export(directory: Path) -> Path:
    """Writes `<table>_<pid>.csv`: a line a counter, and a line a value. Raises OSError."""
    path = directory / f"{TABLE}_{os.getpid()}.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("name", "value"))
        writer.writerows(counters().items())
        writer.writerows((name, value) for name, values in metrics().items() for value in values)
    return path


@functools.cache
def _export_at_exit() -> None:
    tables = os.environ.get("TORCH_NEURONX_ENABLED_METRIC_TABLES", "").split(",")
    if TABLE in (table.strip() for table in tables):
        atexit.register(_export_or_warn)


def _export_or_warn() -> None:
    directory = Path(os.environ.get("TORCH_NEURONX_METRICS_DIR") or tempfile.gettempdir())
    try:
        export(directory)
    except OSError as error:
        log.warning("cannot write metrics to %s: %s", directory, error.strerror)
