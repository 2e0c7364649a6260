"""What can go wrong between `torch.compile` and a graph that runs."""

from __future__ import annotations

from neuron_runtime.errors import NeuronEnvError


class _BackendError(NeuronEnvError):
    """Dynamo shows the text of an exception and nothing else of it."""

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n{self.hint}"


class NEFFCompilationError(_BackendError, RuntimeError):
    """A graph has no NEFF: an operator does not lower, or the compiler refused."""


class NEFFExecutionError(_BackendError, RuntimeError):
    """A NEFF cannot be loaded, or cannot take these inputs."""


class DynamicShapesError(_BackendError, RuntimeError):
    """The caller asked for shapes that are not fixed when the graph is compiled."""


class UnknownOptionError(_BackendError, ValueError):
    """`options` has a key, or a value, that the backend does not know."""
