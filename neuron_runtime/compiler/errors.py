"""How a compile can fail. The cache remembers only what compiling again could not change."""

from __future__ import annotations

from enum import StrEnum

from neuron_runtime.errors import NeuronEnvError


class FailureKind(StrEnum):
    """Why there is no NEFF. COMPILER_ERROR is a property of the graph; the rest pass with host or moment."""

    COMPILER_ERROR = "compiler_error"
    OUT_OF_MEMORY = "out_of_memory"
    KILLED = "killed"
    TIMEOUT = "timeout"
    ENVIRONMENT = "environment"


class CompileFailure(NeuronEnvError):  # noqa: N818 - an outcome that callers keep and show, not only raise
    """A compile ended without a NEFF.

    `stderr` is the tail of what the compiler wrote, and `exit_code` its status: negative for a signal, None
    when no process of its own ended.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: FailureKind,
        stderr: str = "",
        exit_code: int | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind
        self.stderr = stderr
        self.exit_code = exit_code
