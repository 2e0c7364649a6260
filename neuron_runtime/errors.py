"""The root of every error this project raises on purpose."""

from __future__ import annotations


class NeuronEnvError(Exception):
    """What failed and why; `hint` is what to do next.

    The command line prints the message and the hint without a traceback, so both are written for its reader.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message
