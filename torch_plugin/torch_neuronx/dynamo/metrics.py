"""What compiling each graph took: `torch.neuron.get_dynamo_metrics()`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class NeuronCompilationMetrics:
    """One graph. Times in microseconds, `timestamp` in seconds since 1970."""

    graph_id: int
    graph_name: str
    model_name: str
    has_collectives: bool
    graph_node_count: int
    timestamp: float
    torch_neuronx_fx_passes_us: int
    torch_neuronx_lower_us: int
    torch_neuronx_compile_us: int


_noted: list[NeuronCompilationMetrics] = []
_observers: list[tuple[Callable[[NeuronCompilationMetrics], None], Callable[[str, str, str], None]]] = []


def observe(graph: Callable[[NeuronCompilationMetrics], None], fallback: Callable[[str, str, str], None]) -> None:
    """Calls `graph` for each one compiled, and `fallback(model, where it runs instead, reason)`."""
    _observers.append((graph, fallback))


def note(metrics: NeuronCompilationMetrics) -> None:
    _noted.append(metrics)
    for graph, _ in _observers:
        graph(metrics)


def note_fallback(model: str, where: str, reason: str) -> None:
    for _, fallback in _observers:
        fallback(model, where, reason)


def get_dynamo_metrics() -> list[NeuronCompilationMetrics]:
    """Every graph that was compiled since the last reset, in order; those the cache had count too."""
    return list(_noted)


def reset_dynamo_metrics() -> None:
    """Forgets them."""
    _noted.clear()
