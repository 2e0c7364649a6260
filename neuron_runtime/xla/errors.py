"""What XLA and MLIR refuse."""

from __future__ import annotations

from neuron_runtime.errors import NeuronEnvError


class XlaError(NeuronEnvError):
    """XLA or MLIR refused. `status` is XLA's own name for why (`RESOURCE_EXHAUSTED`), where it gave one."""

    def __init__(self, message: str, *, hint: str | None = None, status: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class XlaMissingError(XlaError):
    """jaxlib is not installed, or does not load here."""


def translated(what: str, error: BaseException) -> XlaError:
    """The XlaError for an exception of jaxlib's, beginning with what failed."""
    text = str(error).strip() or type(error).__name__
    head, colon, _ = text.partition(":")
    status = head if colon and head.isupper() and head.replace("_", "").isalpha() else None
    return XlaError(f"{what}: {text}", status=status)
