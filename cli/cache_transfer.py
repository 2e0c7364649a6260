"""neuron-env cache: the commands that move entries."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click

from neuron_runtime.errors import NeuronEnvError

from .cache import shows_progress, store_options
from .cache_changes import DRY_RUN
from .output import Mode, json_option, output, size_text
from .units import duration, duration_text, size

if TYPE_CHECKING:
    from cache_server.administration.listing import Filter
    from cache_server.cache import NeffCache
    from cache_server.jobs.record import Job
    from cache_server.manifest import Manifest
    from cache_server.tier import SharedTier
    from cache_server.transfer.report import Item, Report

P = ParamSpec("P")
R = TypeVar("R")

FORMATS = ["bundle", "torch-neuronx", "neuronxla"]
JOB = click.option("--job", metavar="NAME", help="The job whose entries are meant.  [env: NEURON_ENV_JOB]")


def choice_options(command: Callable[P, R]) -> Callable[P, R]:
    """Give a command the options that choose entries, for `Choice.of`."""
    for option in reversed(
        (
            click.option("--job", metavar="NAME", help="What this job asked for."),
            click.option("--all", "everything", is_flag=True, help="Every NEFF of the namespace."),
            click.option("--label", metavar="TEXT", help="Those with TEXT in their label."),
            click.option(
                "--kind", type=click.Choice(["neff", "failure"]), help="NEFFs by default; or remembered failures."
            ),
            click.option("--larger-than", type=size, metavar="SIZE", help="Those of more bytes: 100M, 1GiB."),
            click.option("--older-than", type=duration, metavar="AGE", help="Those made longer ago: 12h, 7d."),
        )
    ):
        command = option(command)
    return command


@dataclass(frozen=True)
class Choice:
    """Which entries a command is about: some keys, what a job asked for, or what passes a filter."""

    act: str  # what the command does with them
    keys: tuple[str, ...]
    job: str | None
    wanted: Filter

    @classmethod
    def of(
        cls,
        context: click.Context,
        keys: tuple[str, ...],
        job: str | None,
        everything: bool,
        label: str | None,
        kind: str | None,
        larger_than: int | None,
        older_than: float | None,
    ) -> Choice:
        """Raises a usage error unless exactly one of the ways to choose is used."""
        from cache_server.administration.listing import Filter

        act = context.info_name or "take"
        filtered = any(it is not None for it in (label, kind, larger_than, older_than))
        if sum(map(bool, (keys, job, everything or filtered))) != 1:
            raise click.UsageError(f"say what to {act}: KEYs, `--job`, `--all`, or filters as for `ls`", context)
        return cls(act, keys, job, Filter(label, kind or "neff", larger_than, older_than))

    def look_up(self, tier: SharedTier) -> tuple[list[Manifest], Job | None, list[Item]]:
        """The entries, the job if one was named, and a word on each of its keys that has no entry.

        Raises NeuronEnvError if there is nothing.
        """
        from cache_server.jobs.shelf import read_job, shelf_of
        from cache_server.transfer.report import Fate, Item

        known: Job | None = None
        lost: list[Item] = []
        if self.job:
            known = read_job(shelf_of(tier), self.job)
            found = tier.store.read_manifests(known.keys)
            chosen = [manifest for manifest in found.values() if manifest.failure is None]
            lost = [
                Item(text or key, Fate.SKIPPED, "the store has no entry for it", key)
                for key, text in known.keys.items()
                if key not in found
            ]
        else:
            chosen = _by_key(tier, self.keys) if self.keys else _by_filter(tier, self.wanted)
        if not chosen:
            raise NeuronEnvError(f"there is nothing to {self.act}", hint="look with `neuron-env cache ls`")
        return chosen, known, lost


@click.command()
@click.argument("keys", nargs=-1, metavar="[KEY...]")
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Path(path_type=Path),
    required=True,
    metavar="PATH",
    help="A new archive, FILE.tar, or a new directory.",
)
@click.option("--format", "layout", type=click.Choice(FORMATS), default="bundle", show_default=True, help="The layout.")
@choice_options
@store_options
@json_option
@click.pass_context
def export(
    context: click.Context,
    keys: tuple[str, ...],
    target: Path,
    layout: str,
    job: str | None,
    everything: bool,
    label: str | None,
    kind: str | None,
    larger_than: int | None,
    older_than: float | None,
    cache_url: str | None,
    namespace: str | None,
) -> None:
    """Write entries into a bundle, or into a directory that the vendor's software reads.

    \b
    Examples:
      neuron-env cache export --job llama-70b -o llama-70b.tar
      neuron-env cache export --all -o /mnt/usb/neffs
      neuron-env cache export --label decode --format torch-neuronx -o image/neff_cache
      neuron-env cache export --all --format neuronxla -o /var/tmp/neuron-compile-cache

    An unpacked bundle is a store: `NEURON_ENV_CACHE_URL` may name it, read-only too. Equal entries give equal archives.
    The exit code is 1 if an entry had to be left out because the store has lost or damaged a part of it.
    """
    from cache_server.transfer.exporting import Export
    from cache_server.transfer.layouts import Layout
    from cache_server.transfer.report import Report
    from cache_server.transfer.sinks import open_sink

    choice = Choice.of(context, keys, job, everything, label, kind, larger_than, older_than)
    storage = shared_tier(open_cache(cache_url, namespace))
    chosen, known, lost = choice.look_up(storage)
    with open_sink(target) as sink, byte_bar("exporting") as (planned, advanced):
        planned(sum(blob.size for blob in {b for manifest in chosen for b in manifest.files.values()}))
        written = Export(storage.store, sink, str(target), advanced=advanced).run(
            chosen, Layout(layout), [known] if known else []
        )
    tell_report(context, Report((*written.items, *lost)), "exported", f"to {target}")


@click.command("import")
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
@click.option("--format", "layout", type=click.Choice(FORMATS), help="Take only what is in this layout.")
@click.option(
    "--local-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where NEFFs go that have no key of ours.  [default: this host's tier]",
)
@DRY_RUN
@store_options
@json_option
@click.pass_context
def import_command(
    context: click.Context,
    paths: tuple[Path, ...],
    layout: str | None,
    local_dir: Path | None,
    dry_run: bool,
    cache_url: str | None,
    namespace: str | None,
) -> None:
    """Take in bundles, whole stores, and the caches of TorchNeuron and libneuronxla; directories or tar archives.

    \b
    Examples:
      neuron-env cache import llama-70b.tar
      neuron-env cache import /tmp/neff_cache --dry-run
      neuron-env cache import /var/tmp/neuron-compile-cache --json
      neuron-env cache import /tmp/neff_cache --local-dir /fsx/neff_cache

    An entry that is there already stays. Where what a NEFF was made from is not known (TorchNeuron keeps the NEFF
    alone), it goes into a directory of the same layout, for the vendor's software to find. Failures are not taken in:
    theirs have no cause and no end. The exit code is 1 if a file that should have been taken was damaged.
    """
    from cache_server.leases.owner import Owner
    from cache_server.permissions import permissions_named
    from cache_server.transfer.importing import Import
    from cache_server.transfer.layouts import Layout
    from cache_server.transfer.report import Report
    from cache_server.transfer.source import open_source
    from cache_server.transfer.tree import Tree

    cache = open_cache(cache_url, namespace, writes=not dry_run)
    policy = cache.settings.permissions if local_dir else "private"
    tree = Tree((local_dir or cache.settings.local_dir).absolute(), permissions_named(policy))
    items: list[Item] = []
    for path in paths:
        with open_source(path) as source, byte_bar(f"importing {path.name}") as (planned, advanced):
            work = Import(
                source,
                shared_tier(cache),
                tree,
                owner=Owner.here(),
                dry_run=dry_run,
                planned=planned,
                advanced=advanced,
            )
            items += work.run(Layout(layout) if layout else None).items
    tell_report(context, Report(tuple(items)), "imported", "", dry_run=dry_run)


@click.command("prefetch")
@JOB
@DRY_RUN
@store_options
@json_option
@click.pass_context
def prefetch_command(
    context: click.Context, job: str | None, dry_run: bool, cache_url: str | None, namespace: str | None
) -> None:
    """Fetch the NEFFs that a job asked for the last time, before it starts.

    \b
    Examples:
      NEURON_ENV_JOB=llama-70b torchrun … train.py        # writes down what it asks for
      neuron-env cache prefetch --job llama-70b           # on the next host, or the next morning

    What this host has is not fetched again. The exit code is 1 if a NEFF is missing from the store, or could not be
    fetched; the job will compile it.
    """
    from cache_server.jobs.shelf import read_job, shelf_of
    from cache_server.transfer.prefetch import prefetch

    cache = open_cache(cache_url, namespace)
    storage, name = shared_tier(cache), job or cache.settings.job
    if not name:
        raise click.UsageError("which job? give `--job NAME`, or set `NEURON_ENV_JOB`", context)
    known = read_job(shelf_of(storage), name)
    with byte_bar("fetching") as (planned, advanced):
        report = prefetch(storage.store, cache.local, known.keys, dry_run=dry_run, planned=planned, advanced=advanced)
    if known.dropped:
        output().warning(f"the job asked for {known.dropped} more keys than its processes wrote down")
    tell_report(context, report, "fetched", f"to {cache.settings.local_dir}", dry_run=dry_run)


@click.command("push")
@JOB
@DRY_RUN
@store_options
@json_option
@click.pass_context
def push_command(
    context: click.Context, job: str | None, dry_run: bool, cache_url: str | None, namespace: str | None
) -> None:
    """Publish the NEFFs that this host has and the shared cache lacks.

    \b
    Examples:
      neuron-env cache push --dry-run
      neuron-env cache push
      neuron-env cache push --job llama-70b

    For what was compiled while the shared cache was away, or could only be read. A NEFF that the store has in the
    meantime stays as it is there.
    """
    from cache_server.jobs.shelf import read_job, shelf_of
    from cache_server.transfer.push import push

    cache = open_cache(cache_url, namespace, writes=not dry_run)
    storage = shared_tier(cache)
    only = read_job(shelf_of(storage), job).keys if job else None
    with byte_bar("pushing") as (planned, advanced):
        report = push(cache.local, storage.store, only=only, dry_run=dry_run, planned=planned, advanced=advanced)
    tell_report(context, report, "pushed", f"to {storage.store.url}", dry_run=dry_run)


def open_cache(cache_url: str | None, namespace: str | None, *, writes: bool = False) -> NeffCache:
    """The cache that the options, or else the environment, name: a store, or a service that keeps one."""
    from cache_server.cache import NeffCache
    from cache_server.settings import CacheSettings

    settings = CacheSettings.from_environment(url=cache_url, namespace=namespace)
    if writes and settings.read_only:
        raise NeuronEnvError(
            "the shared cache is not to be written", hint="unset `NEURON_ENV_CACHE_MODE`, or set it to read-write"
        )
    return NeffCache.open(settings=settings)


def shared_tier(cache: NeffCache) -> SharedTier:
    """The shared tier of a cache, which must have one."""
    if cache.storage is None:
        raise NeuronEnvError(
            "no shared cache is set", hint="give `--cache-url`, or set `NEURON_ENV_CACHE_URL` to something but none"
        )
    return cache.storage


@contextlib.contextmanager
def byte_bar(label: str) -> Iterator[tuple[Callable[[int], None], Callable[[int], None]]]:
    """A bar on stderr, if somebody watches: takes the bytes to come, and from any thread those done."""
    lock = threading.Lock()
    with click.progressbar(length=1, label=label, file=sys.stderr, hidden=not shows_progress()) as bar:

        def planned(total: int) -> None:
            bar.length = max(total, 1)

        def advanced(amount: int) -> None:
            with lock:
                bar.update(amount)

        yield planned, advanced


def _by_key(storage: SharedTier, keys: tuple[str, ...]) -> list[Manifest]:
    from cache_server.administration.listing import resolve
    from cache_server.names import is_digest

    if all(is_digest(key) for key in keys):
        found = storage.store.read_manifests(keys)
        if missing := [key for key in keys if key not in found]:
            raise NeuronEnvError(f"there is no entry with the key {missing[0]}", hint="type `neuron-env cache ls`")
        return list(found.values())
    entries = {manifest.key: manifest for manifest in storage.store.entries()}
    return [entries[key] for key in dict.fromkeys(resolve(text, entries) for text in keys)]


def _by_filter(storage: SharedTier, wanted: Filter) -> list[Manifest]:
    from cache_server.administration.listing import select
    from cache_server.administration.snapshot import Entry

    store = storage.store
    entries = (Entry(store.namespace, manifest.key, manifest, None) for manifest in store.entries())
    return [entry.manifest for entry in select(entries, wanted, now=time.time())]


def tell_report(context: click.Context, report: Report, verb: str, where: str, *, dry_run: bool = False) -> None:
    """Shows a report, and exits with 1 if anything failed."""
    from cache_server.transfer.report import Fate

    out = output()
    failed = report.having(Fate.FAILED)
    if out.mode is Mode.JSON:
        out.json_document(
            {
                "dry_run": dry_run,
                "items": [item.to_json() for item in report.items],
                "counts": report.counts,
                "bytes": report.moved_bytes,
                "compile_seconds_saved": report.saved_seconds,
            }
        )
    else:
        _tell_people(report, verb, where, dry_run=dry_run)
    if failed:
        context.exit(1)


def _tell_people(report: Report, verb: str, where: str, *, dry_run: bool) -> None:
    from cache_server.transfer.report import Fate

    out = output()
    words = {Fate.MOVED: f"to be {verb}" if dry_run else verb, Fate.PRESENT: "already there"}
    rows = [
        (words.get(item.fate, item.fate.value), item.name, size_text(item.size) if item.size else "", _note(item))
        for item in report.items
        if item.fate is not Fate.PRESENT or item.why
    ]
    if rows:
        out.table(("", "what", "size", "why"), rows)
    counts = report.counts
    parts = [f"{words.get(fate, fate.value)}: {counts[fate.value]}" for fate in Fate if counts[fate.value]]
    saved = f", {duration_text(report.saved_seconds)} of compiling" if report.saved_seconds >= 0.01 else ""
    out.line(f"{'; '.join(parts) or 'nothing'} ({size_text(report.moved_bytes)}{saved}) {where}".rstrip(), bold=True)


def _note(item: Item) -> str:
    where = f"in {item.place}" if item.place and item.why and item.fate.value == "moved" else ""
    return ", ".join(text for text in (item.why, where) if text)
