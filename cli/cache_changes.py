"""neuron-env cache: the commands that change the store."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from neuron_runtime.errors import NeuronEnvError

from .cache import confirm, open_administration, shows_progress, store_options
from .output import Mode, json_option, output, size_text
from .units import count_text, duration, duration_text, size

if TYPE_CHECKING:
    from cache_server.administration.base import Administration, Proposal
    from cache_server.administration.locks import Hold
    from cache_server.administration.removal import Removed, Thing

DRY_RUN = click.option("-n", "--dry-run", is_flag=True, help="Show what would be done, and do nothing.")
YES = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


@click.command()
@click.argument("key")
@click.option("--force", is_flag=True, help="Also from an owner that lives: its result will not be published.")
@store_options
@json_option
def takeover(key: str, force: bool, cache_url: str | None, namespace: str | None) -> None:
    """Free the lease of a dead owner, so that nobody waits for it any longer.

    \b
    Examples:
      neuron-env cache locks
      neuron-env cache takeover 3f9a51

    An owner on another host is watched first, for up to its lease's length. One that comes back to life is fenced:
    whoever compiles next has a later epoch, and the old owner can publish nothing. Waiters do all this by themselves
    when a lease runs out; this is for the impatient.
    """
    from cache_server.administration.listing import resolve
    from cache_server.administration.locks import Life

    _, administration = open_administration(cache_url, namespace)
    out, holds = output(), administration.holds()
    chosen = resolve(key, (hold.seen.key for hold in holds), what="held lease")
    hold = next(hold for hold in holds if hold.seen.key == chosen)
    if hold.life is Life.UNKNOWN and not force:
        out.note(f"watching {_owner(hold)} for up to {duration_text(hold.lease_seconds)}")
        watched = administration.watch([hold])
        if not watched:
            raise NeuronEnvError(f"the lease of {chosen[:16]} has ended by itself")
        hold = watched[0]
    if hold.life is not Life.DEAD and not force:
        raise NeuronEnvError(
            f"{_owner(hold)} is alive and holds {chosen[:16]}", hint="give `--force` to take the lease from it"
        )
    if not administration.free(hold):
        raise NeuronEnvError(
            f"the lease of {chosen[:16]} changed just now: its owner lives, or is done",
            hint="look again with `neuron-env cache locks`",
        )
    epoch = hold.seen.record.epoch if hold.seen.record else None
    if out.mode is Mode.JSON:
        out.json_document({"key": chosen, "freed": True, "owner_was": hold.life.value, "epoch": epoch})
    else:
        out.line(f"freed: {chosen[:16]}, held by {_owner(hold)} ({hold.life.value})")


@click.command("pin")
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@store_options
@json_option
def pin_command(keys: tuple[str, ...], cache_url: str | None, namespace: str | None) -> None:
    """Keep entries from `rm` and `gc`.

    \b
    Examples:
      neuron-env cache pin 3f9a51
      neuron-env cache ls --label production --quiet | xargs neuron-env cache pin
    """
    _, administration = open_administration(cache_url, namespace)
    _tell_pins("pinned", [administration.pin(key) for key in keys])


@click.command("unpin")
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@store_options
@json_option
def unpin_command(keys: tuple[str, ...], cache_url: str | None, namespace: str | None) -> None:
    """Take the pins of entries away.

    \b
    Examples:
      neuron-env cache unpin 3f9a51
    """
    _, administration = open_administration(cache_url, namespace)
    _tell_pins("unpinned", [administration.unpin(key) for key in keys])


@click.command()
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@DRY_RUN
@YES
@store_options
@json_option
@click.pass_context
def rm(
    context: click.Context,
    keys: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    cache_url: str | None,
    namespace: str | None,
) -> None:
    """Remove entries: their manifests, their lease records, and the blobs that nothing else names.

    \b
    Examples:
      neuron-env cache rm 3f9a51
      neuron-env cache ls --kind failure --quiet | xargs neuron-env cache rm -y

    The next who asks for such a graph compiles it again. Hosts that have the NEFF in their local tier keep it. A
    service removes the blobs itself, in its next collection.
    """
    _, administration = open_administration(cache_url, namespace)
    _execute(context, administration, administration.removal(keys), dry_run=dry_run, yes=yes, all_of_it=True)


@click.command()
@click.option(
    "--max-bytes", type=size, metavar="SIZE", help="Remove the least recently used until the rest fits: 200GiB."
)
@click.option("--older-than", type=duration, metavar="AGE", help="Remove entries made longer ago: 30d.")
@click.option("--unused-for", type=duration, metavar="AGE", help="Remove entries last used longer ago: 30d.")
@click.option(
    "--grace",
    type=duration,
    metavar="AGE",
    default="1h",
    show_default=True,
    help="How old a blob must be that nothing names.",
)
@DRY_RUN
@YES
@store_options
@json_option
@click.pass_context
def gc(
    context: click.Context,
    max_bytes: int | None,
    older_than: float | None,
    unused_for: float | None,
    grace: float,
    dry_run: bool,
    yes: bool,
    cache_url: str | None,
    namespace: str | None,
) -> None:
    """Remove what the store can do without.

    \b
    Examples:
      neuron-env cache gc --dry-run
      neuron-env cache gc --max-bytes 200GiB -y
      neuron-env cache gc --unused-for 30d -y

    Always: expired failures, blobs that nothing names, files of writers that died, lease records that are free for a
    week, quarantined files of a week. With `--max-bytes`, also the entries that were not used for longest. Only the
    service records last uses; an entry without one counts as last used when it was made. Pinned entries stay.
    """
    from cache_server.administration.collection import Policy

    _, administration = open_administration(cache_url, namespace)
    proposal = administration.collection(Policy(max_bytes, older_than, grace, unused_for=unused_for))
    _execute(context, administration, proposal, dry_run=dry_run, yes=yes, all_of_it=False)


@click.command()
@click.option("--repair", "mend", is_flag=True, help="Mend what can be mended.")
@click.option("--sizes-only", is_flag=True, help="Compare the blobs' sizes, do not read them.")
@click.option(
    "--grace",
    type=duration,
    metavar="AGE",
    default="1h",
    show_default=True,
    help="How old a blob must be that nothing names.",
)
@store_options
@json_option
@click.pass_context
def fsck(
    context: click.Context,
    mend: bool,
    sizes_only: bool,
    grace: float,
    cache_url: str | None,
    namespace: str | None,
) -> None:
    """Check the store: missing, damaged and orphaned blobs, manifests, permissions, leases.

    \b
    Examples:
      neuron-env cache fsck
      neuron-env cache fsck --repair

    Without `--repair` nothing is changed. The exit code is 1 if a problem stays.
    """
    _, administration = open_administration(cache_url, namespace)
    out = output()
    with _bar("checking") as progress:
        found = administration.check(repair=mend, contents=not sizes_only, grace=grace, progress=progress)
    repaired = sum(finding.repaired for finding in found)
    remaining = len(found) - repaired
    if out.mode is Mode.JSON:
        documents = [finding.to_json() for finding in found]
        out.json_document({"ok": not remaining, "problems": documents, "remaining": remaining})
    else:
        for it in found:
            remedy = "repaired" if it.repaired else f"repair: {it.repair}"
            out.check(it.repaired, f"{it.fault.value}: {it.name}: {it.detail}; {remedy}")
        verdict = f"{len(found)} problems, {repaired} repaired" if found else "no problems"
        out.line(f"{administration.url}, namespace {administration.namespace}: {verdict}", bold=True)
        if remaining and not mend:
            out.hint("type `neuron-env cache fsck --repair`")
    if remaining:
        context.exit(1)


@contextmanager
def _bar(label: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr, if somebody watches: takes how much is done, and of how much."""
    with click.progressbar(length=1, label=label, file=sys.stderr, hidden=not shows_progress()) as bar:

        def advance(done: int, total: int) -> None:
            bar.length = max(total, 1)
            bar.update(done - bar.pos)

        yield advance


def _execute(
    context: click.Context,
    administration: Administration,
    proposal: Proposal,
    *,
    dry_run: bool,
    yes: bool,
    all_of_it: bool,
) -> None:
    """Shows a proposal, asks, and carries it out; exit 1 if `all_of_it` had to be done and something was left."""
    out, things = output(), proposal.things
    for note in proposal.notes:
        out.note(note)
    if dry_run or not things:
        _tell(proposal, None, dry_run=dry_run)
        return
    size = size_text(sum(thing.size for thing in things))
    confirm(f"remove {_counted(things)}, {size}, from {administration.url}", yes=yes)
    with _bar("removing") as progress:
        removed = proposal.carry_out(progress)
    _tell(proposal, removed, dry_run=False)
    if removed.left and all_of_it:
        context.exit(1)


def _tell(proposal: Proposal, removed: Removed | None, *, dry_run: bool) -> None:
    out = output()
    done = proposal.things if removed is None else removed.done
    left = () if removed is None else removed.left
    freed = sum(thing.size for thing in done)
    if out.mode is Mode.JSON:
        out.json_document(
            {
                "dry_run": dry_run,
                "removed": [thing.to_json() for thing in done],
                "left": [thing.to_json() for thing in left],
                "freed_bytes": freed,
                "notes": list(proposal.notes),
            }
        )
        return
    if not proposal.things:
        out.line("nothing to remove")
        return
    if removed is None:
        rows = [(thing.kind.value, thing.name[:48], size_text(thing.size), thing.reason) for thing in done]
        out.table(("what", "name", "size", "why"), rows)
    for thing in left:
        out.warning(f"{thing.kind.value} {thing.name[:16]} was left: it changed meanwhile, is pinned, or is gone")
    verb = "would remove" if removed is None else "removed"
    out.line(f"{verb} {_counted(done)}; {size_text(freed)} {'to be freed' if removed is None else 'freed'}")


def _counted(things: Sequence[Thing]) -> str:
    from collections import Counter

    counts = Counter(thing.kind.value for thing in things)
    plural = {"entry": "entries"}
    return ", ".join(count_text(n, kind, plural.get(kind, "")) for kind, n in counts.items()) or "nothing"


def _tell_pins(verb: str, results: list[tuple[str, bool]]) -> None:
    out = output()
    if out.mode is Mode.JSON:
        out.json_document({verb: [key for key, _ in results], "changed": [key for key, changed in results if changed]})
        return
    for key, changed in results:
        out.line(f"{verb}: {key[:16]}" + ("" if changed else " (it was already)"))


def _owner(hold: Hold) -> str:
    return str(hold.seen.record.owner) if hold.seen.record else "the owner of a damaged record"
