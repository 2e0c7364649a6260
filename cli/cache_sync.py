"""neuron-env cache sync: TorchNeuron's own cache directory and the shared cache."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from neuron_runtime.errors import NeuronEnvError

from .cache import store_options
from .cache_changes import DRY_RUN
from .cache_transfer import byte_bar, open_cache, shared_tier, tell_report
from .output import json_option, output, size_text

if TYPE_CHECKING:
    from cache_server.transfer.report import Report
    from cache_server.transfer.sync import Sync

_PULL_SECONDS = 60.0


@click.command("sync")
@click.argument(
    "directory", required=False, type=click.Path(path_type=Path, file_okay=False), envvar="TORCH_NEURONX_NEFF_CACHE_DIR"
)
@click.option("--release", metavar="NAME", help="The vendor's release that the NEFFs are of.  [default: neuronx-cc's]")
@click.option("--fill", "way", flag_value="fill", help="Only from the shared cache into the directory.")
@click.option("--upload", "way", flag_value="upload", help="Only from the directory into the shared cache.")
@click.option("--watch", is_flag=True, help="Go on until SIGTERM, which uploads what is left.")
@click.option("--every", type=click.FloatRange(0.05), default=2.0, show_default=True, help="Seconds between looks.")
@store_options
@DRY_RUN
@json_option
@click.pass_context
def sync_command(
    context: click.Context,
    directory: Path | None,
    release: str | None,
    way: str | None,
    watch: bool,
    every: float,
    cache_url: str | None,
    namespace: str | None,
    dry_run: bool,
) -> None:
    """Fill TorchNeuron's cache directory before a job, and upload what it compiled.

    \b
    Examples:
      neuron-env cache sync /tmp/neff_cache --fill
      neuron-env cache sync /tmp/neff_cache --upload
      neuron-env cache sync /tmp/neff_cache --watch

    DIRECTORY is what TORCH_NEURONX_NEFF_CACHE_DIR names. TorchNeuron's keys do not hold the compiler's version, so
    NEFFs are shared only among hosts with the same release: by default the version of the neuronx-cc on PATH.
    """
    from cache_server.leases.owner import Owner
    from cache_server.transfer.sync import Sync, TorchDirectory

    if directory is None:
        raise click.UsageError("name the directory, or set `TORCH_NEURONX_NEFF_CACHE_DIR`")
    if watch and dry_run:
        raise click.UsageError("`--watch` and `--dry-run` exclude each other")
    cache = open_cache(cache_url, namespace, writes=way != "fill" and not dry_run)
    store = shared_tier(cache).store
    chosen = _release(release, cache.settings.local_dir)
    place = TorchDirectory(directory.absolute())
    if watch:
        _watch(Sync(place, store, chosen, owner=Owner.here()), way, every)
        return
    from cache_server.transfer.report import Report

    with byte_bar("syncing") as (planned, advanced):
        sync = Sync(place, store, chosen, owner=Owner.here(), dry_run=dry_run, planned=planned, advanced=advanced)
        items = [] if way == "upload" else list(sync.fill().items)
        if way != "fill":
            moved = {item.name for item in items}
            items += [item for item in sync.upload().items if item.name not in moved]
    tell_report(context, Report.of(items), "synced", f"{directory}, {store.url}", dry_run=dry_run)


def _release(given: str | None, local_dir: Path) -> str:
    from cache_server.launcher.arguments import NotCached
    from cache_server.launcher.installing import real_compiler
    from cache_server.launcher.version import compiler_at
    from cache_server.transfer.foreign import check_release

    if given is not None:
        return check_release(given)
    found = real_compiler(os.environ)
    try:
        if found is None:
            raise NotCached("there is no neuronx-cc on PATH")
        return check_release(compiler_at(found, local_dir / "launcher", os.environ).version)
    except NotCached as why:
        raise NeuronEnvError(
            f"the release is not known: {why}", hint="name it with `--release`, the same on every host"
        ) from why


def _watch(sync: Sync, way: str | None, every: float) -> None:
    """Fills and uploads until a signal ends it. A store that is away is tried again at the next look."""
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    next_pull = time.monotonic()
    told = ""
    while True:
        last = ended.is_set()
        problem = ""
        try:
            if way != "upload" and not last and time.monotonic() >= next_pull:
                next_pull = time.monotonic() + _PULL_SECONDS
                _note("filled", sync.fill())
            if way != "fill":
                _note("uploaded", sync.upload())
        except (NeuronEnvError, OSError) as error:
            problem = str(error)
        if problem and problem != told:
            output().warning(problem)
        told = problem
        if last:
            if problem:
                raise NeuronEnvError("the last upload did not go through", hint="run `neuron-env cache sync --upload`")
            return
        ended.wait(every)


def _note(what: str, report: Report) -> None:
    from cache_server.transfer.report import Fate

    moved, failed = report.having(Fate.MOVED), report.having(Fate.FAILED)
    if moved:
        output().line(f"{what}: {len(moved)}, {size_text(report.moved_bytes)}")
    for item in failed[:3]:
        output().warning(f"{item.name}: {item.why}")
