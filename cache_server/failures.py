"""Which failed compiles are remembered, and how one is told again to whoever asks next."""

from __future__ import annotations

from cache_server.manifest import Failure, Manifest
from neuron_runtime.compiler.errors import CompileFailure, FailureKind

# Out of memory, a signal, a time limit or a missing library belong to one host or one moment. Remembering them is how
# a cache turns an accident into an outage.
_REMEMBERED = frozenset({FailureKind.COMPILER_ERROR})


def remember(error: CompileFailure, *, now: float, ttl_seconds: float) -> Failure | None:
    """What a manifest keeps of `error`; None for a failure that compiling again could cure. `now` is wall time."""
    if error.kind not in _REMEMBERED or ttl_seconds <= 0:
        return None
    text = error.message if not error.stderr else f"{error.message}\n{error.stderr}"
    return Failure(error.kind, text, expires_at=now + ttl_seconds, exit_code=error.exit_code)


def retell(manifest: Manifest, *, now: float) -> CompileFailure:
    """The exception for a hit on a remembered failure: its text, age, origin and remaining time."""
    failure = manifest.failure
    assert failure is not None
    origin = manifest.producer
    return CompileFailure(
        f"this graph failed to compile {_span(now - manifest.created_at)} ago on {origin.host} (pid {origin.pid}, "
        f"user {origin.user}, {origin.compiler}); remembered for another {_span(failure.expires_at - now)}:\n"
        f"{failure.text}",
        kind=failure.kind,
        stderr=failure.text,
        exit_code=failure.exit_code,
        hint="set `NEURON_ENV_CACHE_RETRY_FAILURES=1` to compile it again now",
    )


def _span(seconds: float) -> str:
    seconds = max(0.0, seconds)
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
