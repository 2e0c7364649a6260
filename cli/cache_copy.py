"""neuron-env cache copy: from store to store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .cache_changes import DRY_RUN
from .cache_transfer import Choice, byte_bar, choice_options, tell_report
from .output import json_option

if TYPE_CHECKING:
    from cache_server.settings import CacheSettings
    from cache_server.tier import SharedTier

_PATIENCE = 10.0  # seconds that a service of another region may be silent, at least
_TOKEN = click.Path(path_type=Path, dir_okay=False)


@click.command("copy")
@click.argument("keys", nargs=-1, metavar="[KEY...]")
@click.option("--from", "source_url", metavar="URL", help="The store to read.  [env: NEURON_ENV_CACHE_URL]")
@click.option("--to", "target_url", metavar="URL", help="The store to fill.  [env: NEURON_ENV_CACHE_URL]")
@choice_options
@click.option("--namespace", metavar="NAME", help="The namespace to read.  [env: NEURON_ENV_CACHE_NAMESPACE]")
@click.option("--to-namespace", metavar="NAME", help="The namespace to fill.  [default: the same]")
@click.option("--from-token-file", type=_TOKEN, metavar="FILE", help="The token for the service to read.")
@click.option("--to-token-file", type=_TOKEN, metavar="FILE", help="The token for the service to fill.")
@DRY_RUN
@json_option
@click.pass_context
def copy_command(
    context: click.Context,
    keys: tuple[str, ...],
    source_url: str | None,
    target_url: str | None,
    job: str | None,
    everything: bool,
    label: str | None,
    kind: str | None,
    larger_than: int | None,
    older_than: float | None,
    namespace: str | None,
    to_namespace: str | None,
    from_token_file: Path | None,
    to_token_file: Path | None,
    dry_run: bool,
) -> None:
    """Copy entries from one store to another: directories, buckets and services, in any combination.

    \b
    Examples:
      neuron-env cache copy --from s3://neffs-us/neff --to s3://neffs-eu/neff --all
      neuron-env cache copy --to https://neff-cache.eu.example.com --to-token-file eu.token --job llama-70b
      neuron-env cache copy --from /fsx/neuron-cache --to s3://bucket/neff --all --dry-run

    What is there is not sent again: run it again after an interruption, or every night. A NEFF is never replaced.
    Every blob is verified on its way. A token in the environment is for the service that NEURON_ENV_CACHE_URL names, or
    for the only service there is. The exit code is 1 if an entry could not be copied.
    """
    from cache_server.jobs.shelf import shelf_of
    from cache_server.settings import CacheSettings
    from cache_server.storage import is_service
    from cache_server.transfer.copying import copy, copy_job
    from cache_server.transfer.report import Report

    usual = CacheSettings.from_environment(namespace=namespace).url or ""
    start, end = source_url or usual, target_url or usual
    if not (source_url or target_url) or not (start and end):
        raise click.UsageError("say where from and where to: `--from URL --to URL`", context)
    choice = Choice.of(context, keys, job, everything, label, kind, larger_than, older_than)
    settings = CacheSettings.from_environment(url=start, namespace=namespace)
    if start.rstrip("/") == end.rstrip("/") and to_namespace in (None, settings.namespace):
        raise click.UsageError(f"this would copy {start} to itself", context)
    both = is_service(start) and is_service(end)
    source = _open(start, settings, settings.namespace, from_token_file, own_token=not both or start == usual)
    target = _open(end, settings, to_namespace or settings.namespace, to_token_file, own_token=not both or end == usual)
    chosen, known, lost = choice.look_up(source)
    with byte_bar("copying") as (planned, advanced):
        report = copy(source.store, target.store, chosen, dry_run=dry_run, planned=planned, advanced=advanced)
    if known is not None and not dry_run:
        copy_job(shelf_of(source), shelf_of(target), known.name)
    tell_report(context, Report((*report.items, *lost)), "copied", f"to {end}", dry_run=dry_run)


def _open(url: str, settings: CacheSettings, namespace: str, token_file: Path | None, *, own_token: bool) -> SharedTier:
    """One side. `own_token`: the environment's token may be shown to it, if there is no file."""
    from dataclasses import replace

    from cache_server.storage import is_service, open_storage

    trust = settings.trust()
    if not is_service(url):
        return open_storage(url, namespace=namespace, permissions=settings.permissions, trust=trust)
    from cache_server.remote.options import RemoteOptions
    from cache_server.remote.tier import RemoteTier

    options = RemoteOptions.from_environment(url)
    options = replace(options, timeout_seconds=max(options.timeout_seconds, _PATIENCE))
    if token_file is not None:
        options = replace(options, token=None, token_file=token_file)
    elif not own_token:
        options = replace(options, token=None, token_file=None)
    return RemoteTier.open(options, namespace, trust, uses=False)
