"""What compiling each graph took: `torch.neuron.get_dynamo_metrics()`."""

from __future__ import annotations

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


def note(metrics: NeuronCompilationMetrics) -> None:
    _noted.append(metrics)


def get_dynamo_metrics() -> list[NeuronCompilationMetrics]:
    """Every graph that was compiled since the last reset, in order; those the cache had count too."""
    return list(_noted)


def reset_dynamo_metrics() -> None:
    """Forgets them."""
    _noted.clear()
