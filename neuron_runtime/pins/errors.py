"""What can be wrong with pins."""

from __future__ import annotations

from neuron_runtime.errors import NeuronEnvError


class PinsError(NeuronEnvError):
    """A release, a set, a lock or a list of packages that cannot be used, and why."""
