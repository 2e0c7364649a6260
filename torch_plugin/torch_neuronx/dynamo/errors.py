"""What can go wrong between `torch.compile` and a graph that runs."""

from __future__ import annotations

from neuron_runtime.errors import NeuronEnvError


class NEFFCompilationError(NeuronEnvError, RuntimeError):
    """A graph has no NEFF: an operator does not lower, or the compiler refused."""


class NEFFExecutionError(NeuronEnvError, RuntimeError):
    """A NEFF cannot be loaded, or cannot take these inputs."""


class DynamicShapesError(NeuronEnvError, RuntimeError):
    """The caller asked for shapes that are not fixed when the graph is compiled."""


class UnknownOptionError(NeuronEnvError, ValueError):
    """`options` has a key, or a value, that the backend does not know."""
