"""Options and output that `compile` and `run` share: a PyTorch program, the cache it goes through, what came of it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from .output import output, size_text

if TYPE_CHECKING:
    from cache_server import CacheResult, NeffCache, Waiting

P = ParamSpec("P")
R = TypeVar("R")

_OUTCOMES = {
    "local_hit": "from this host's tier",
    "shared_hit": "from the shared tier",
    "compiled": "compiled here",
    "compiled_uncached": "compiled here, not shared",
}


def cache_options(command: Callable[P, R]) -> Callable[P, R]:
    """Give a command `--cache-url` and `--cache-local-dir`."""
    url = click.option("--cache-url", metavar="URL", help="The shared cache.  [env: NEURON_ENV_CACHE_URL]")
    local = click.option(
        "--cache-local-dir", metavar="DIR", help="This host's tier.  [env: NEURON_ENV_CACHE_LOCAL_DIR]"
    )
    return functools.wraps(command)(url(local(command)))


def open_cache(cache_url: str | None, cache_local_dir: str | None) -> NeffCache:
    """The cache that the options, or else the environment, name; waits are told on stderr."""
    from cache_server import NeffCache

    return NeffCache.open(cache_url, local_dir=cache_local_dir, progress=_tell_waiting)


def describe_result(label: str, result: CacheResult) -> str:
    """One line for people on how a NEFF was come by."""
    text = f"{label}: {_OUTCOMES[result.outcome.value]}"
    if result.compile_seconds:
        text += f" in {result.compile_seconds:.2f} s"
    if result.waited_seconds > 0.05:
        text += f", after {result.waited_seconds:.2f} s of waiting for {result.waited_for or 'another process'}"
    if result.saved_seconds:
        text += f", {result.saved_seconds:.2f} s of compiling saved"
    if result.took_over:
        text += ", taken over from an owner that died"
    if result.reason:
        text += f" ({result.reason})"
    return f"{text}; {size_text(len(result.neff))}, key {result.key[:12]}"


def result_document(label: str, result: CacheResult) -> dict[str, Any]:
    return {
        "label": label,
        "key": result.key,
        "outcome": result.outcome.value,
        "bytes": len(result.neff),
        "compile_seconds": result.compile_seconds,
        "waited_seconds": result.waited_seconds,
        "waited_for": result.waited_for or None,
        "saved_seconds": result.saved_seconds,
        "took_over": result.took_over,
        "epoch": result.epoch,
        "reason": result.reason or None,
    }


def _tell_waiting(waiting: Waiting) -> None:
    what = waiting.label or waiting.key[:12]
    if waiting.for_slot:
        output().note(
            f"waiting for a compile slot for {what} since {waiting.waited_seconds:.0f} s; they are taken by "
            f"{waiting.owner} (see `NEURON_ENV_COMPILE_SLOTS`)"
        )
        return
    output().note(
        f"waiting for {waiting.owner} ({waiting.phase}, {waiting.age_seconds:.0f} s) to compile {what}; "
        f"compiling here in {waiting.gives_up_in:.0f} s if it does not end"
    )
