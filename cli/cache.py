"""neuron-env cache: the group, and what its commands share."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click

from neuron_runtime.errors import NeuronEnvError

from .lazy import LazyCommand, LazyGroup

if TYPE_CHECKING:
    from cache_server.administration.base import Administration
    from cache_server.settings import CacheSettings

P = ParamSpec("P")
R = TypeVar("R")

COMMANDS = {
    "serve": LazyCommand("cli.cache_serve:serve_command", "Serve the cache to a fleet over HTTP."),
    "status": LazyCommand("cli.cache_reading:status", "Show the store, its leases and its size."),
    "ls": LazyCommand("cli.cache_reading:ls", "List entries."),
    "show": LazyCommand("cli.cache_reading:show", "Show one entry: files, origin, lease."),
    "explain": LazyCommand("cli.cache_reading:explain", "Show what an entry's key is made of."),
    "diff": LazyCommand("cli.cache_reading:diff", "Say why two compiles have different keys."),
    "locks": LazyCommand("cli.cache_reading:locks", "List the compiles that hold a lease."),
    "takeover": LazyCommand("cli.cache_changes:takeover", "Free the lease of a dead owner."),
    "pin": LazyCommand("cli.cache_changes:pin_command", "Keep entries from `rm` and `gc`."),
    "unpin": LazyCommand("cli.cache_changes:unpin_command", "Take pins away."),
    "rm": LazyCommand("cli.cache_changes:rm", "Remove entries."),
    "gc": LazyCommand("cli.cache_changes:gc", "Remove what the store can do without."),
    "token": LazyCommand("cli.cache_tokens:token", "Make, list and revoke tokens for the service."),
    "key": LazyCommand("cli.cache_tokens:key", "Make and show keys that manifests are signed with."),
    "copy": LazyCommand("cli.cache_copy:copy_command", "Copy entries to another store, such as another region's."),
    "fsck": LazyCommand("cli.cache_changes:fsck", "Check the store, and mend it."),
    "export": LazyCommand("cli.cache_transfer:export", "Write entries into a bundle, or the vendor's layouts."),
    "import": LazyCommand("cli.cache_transfer:import_command", "Take in bundles, stores and the vendor's caches."),
    "prefetch": LazyCommand("cli.cache_transfer:prefetch_command", "Fetch a job's NEFFs before it starts."),
    "push": LazyCommand("cli.cache_transfer:push_command", "Publish what this host alone has."),
    "doctor": LazyCommand("cli.cache_doctor:doctor_command", "Find what is wrong with the vendor's caches."),
    "sync": LazyCommand("cli.cache_sync:sync_command", "Fill and upload TorchNeuron's own cache directory."),
    "jobs": LazyCommand("cli.cache_jobs:jobs", "Look into what jobs asked for."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def cache() -> None:
    """Look into the shared NEFF cache and look after it.

    \b
    Examples:
      neuron-env cache status
      neuron-env cache ls --sort size --limit 10
      neuron-env cache locks
      neuron-env cache gc --max-bytes 200GiB --dry-run

    All of it works on a directory, a bucket, or a service. A KEY may be shortened to what is unambiguous. Every command
    is safe beside running jobs: whatever is taken from under one is a miss for it.
    """


def store_options(command: Callable[P, R]) -> Callable[P, R]:
    """Give a command `--cache-url` and `--namespace`."""
    url = click.option("--cache-url", metavar="URL", help="The shared cache.  [env: NEURON_ENV_CACHE_URL]")
    namespace = click.option(
        "--namespace", metavar="NAME", help="The namespace in it.  [env: NEURON_ENV_CACHE_NAMESPACE]"
    )
    return functools.wraps(command)(url(namespace(command)))


def cache_settings(cache_url: str | None, namespace: str | None) -> tuple[CacheSettings, str]:
    """The settings that the options, or else the environment, give, and the URL of the shared tier in them."""
    from cache_server.settings import CacheSettings

    settings = CacheSettings.from_environment(url=cache_url, namespace=namespace)
    if settings.url is None:
        raise NeuronEnvError(
            "no shared cache is set", hint="give `--cache-url`, or set `NEURON_ENV_CACHE_URL` to something but none"
        )
    return settings, settings.url


def open_administration(cache_url: str | None, namespace: str | None) -> tuple[CacheSettings, Administration]:
    """Whoever looks after the shared tier that the options, or else the environment, name."""
    from cache_server.administration import opening

    settings, url = cache_settings(cache_url, namespace)
    return settings, opening.open_administration(
        url, namespace=settings.namespace, permissions=settings.permissions, trust=settings.trust()
    )


def confirm(what: str, *, yes: bool) -> None:
    """Asks before something is destroyed; raises where nobody can be asked, and click.Abort for a no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise NeuronEnvError(
            f"this would {what}, and there is no terminal to ask on",
            hint="give `-y` to do it, or `--dry-run` to see what it would do",
        )
    click.confirm(f"{what[0].upper()}{what[1:]}?", abort=True, err=True)


def shows_progress() -> bool:
    """Whether somebody watches stderr and wants to see long work advance."""
    from neuron_runtime.config.layers import settings_environment

    return sys.stderr.isatty() and not settings_environment().get("NEURON_ENV_NO_PROGRESS")
