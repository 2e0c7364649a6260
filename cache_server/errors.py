"""What can go wrong in the cache. Only misuse reaches a job; the rest turns into a compile without the cache."""

from __future__ import annotations

from neuron_runtime.errors import NeuronEnvError


class CacheError(NeuronEnvError):
    """A setting or a location the cache refuses to work with."""


class StoreError(CacheError):
    """The store could not be read or written: permissions, a full disk, a mount that went away."""


class ConflictError(CacheError):
    """Somebody else created or changed the record first. Read it again."""


class LeaseLostError(CacheError):
    """The lease has another owner by now, so what this process made must not be published."""


class NotExclusiveError(CacheError):
    """The store lets two writers win, so leases on it would promise what they cannot keep."""


class UnavailableError(StoreError):
    """The store gave no useful answer this time: asking again later may help.

    `retry_after` is the pause in seconds that the store asked for; None if it did not.
    """

    def __init__(self, message: str, *, hint: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class PacedError(UnavailableError):
    """The store works, and asks this client to be slower: `retry_after` says how much."""


class TimedOutError(UnavailableError):
    """The store did not answer in time."""


class BreakerOpenError(UnavailableError):
    """The store failed so often that it is left alone until it answers a probe."""


class DigestError(CacheError):
    """Content does not have the length or the SHA-256 that it was announced with."""
