"""What is not there, with the reason: a result, not a failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from neuron_runtime.errors import NeuronEnvError

T = TypeVar("T")


class NotFoundHere(NeuronEnvError):  # noqa: N818 - a finding rather than an error
    """Something cannot be found out about a host; the message says why."""


class Facts:
    """What one probe found: values by name, and for each that is None the reason."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.reasons: dict[str, str] = {}

    def take(self, name: str, read: Callable[[], T]) -> T | None:
        """Keeps what `read` returns, or None and the reason it raised as NotFoundHere."""
        try:
            value: T | None = read()
        except NotFoundHere as missing:
            value = None
            self.reasons[name] = missing.message
        self.values[name] = value
        return value

    def put(self, name: str, value: object) -> None:
        self.values[name] = value

    def lack(self, name: str, reason: str) -> None:
        self.values[name] = None
        self.reasons[name] = reason
