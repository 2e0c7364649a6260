"""neuron-env cache: the commands that only look."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from .cache import open_administration, store_options
from .output import Mode, json_option, output, quiet_option, size_text
from .units import count_text, duration, duration_text, size

if TYPE_CHECKING:
    from cache_server.administration.locks import Hold
    from cache_server.administration.status import ServiceStatus, StoreStatus, Usage
    from cache_server.leases.record import LeaseRecord


@click.command()
@click.option("--details", is_flag=True, help="Also count by kind: reads every manifest. A service has counted.")
@store_options
@json_option
def status(details: bool, cache_url: str | None, namespace: str | None) -> None:
    """Show the store, whether its leases work, what it holds, and the compiles on their way.

    \b
    Examples:
      neuron-env cache status
      neuron-env cache status --cache-url /fsx/neuron-cache --details
      neuron-env cache status --cache-url https://neff-cache.example.com --json

    A directory or a bucket that holds something is probed: a record is written and removed again. Of a service, also
    its room, hit rate and waiters.
    """
    from cache_server.administration.status import local_usage

    settings, administration = open_administration(cache_url, namespace)
    out, found, local = output(), administration.status(details=details), local_usage(settings.local_dir)
    if out.mode is Mode.JSON:
        out.json_document(
            {
                "store": administration.url,
                "namespace": settings.namespace,
                "local": {"directory": str(settings.local_dir), **_usage(local)},
                **_status_document(found),
            }
        )
        return
    out.record(
        {
            "store": administration.url,
            "namespace": settings.namespace,
            "leases": f"{found.leases}: {found.verdict}",
            **_entries_record(found),
            "in flight": len(found.holds),
            "blobs": found.blobs and f"{found.blobs.count}, {size_text(found.blobs.size)}, of all namespaces",
            "quarantined": found.quarantined and f"{found.quarantined.count}, {size_text(found.quarantined.size)}",
            **({} if found.service is None else _service_record(found.service)),
            "local tier": f"{settings.local_dir}: {local.count} NEFFs, {size_text(local.size)}",
        }
    )


@click.command()
@store_options
@click.option("--label", metavar="TEXT", help="Only those with TEXT in their label.")
@click.option("--kind", type=click.Choice(["neff", "failure"]), help="Only NEFFs, or only remembered failures.")
@click.option("--larger-than", type=size, metavar="SIZE", help="Only those of more bytes: 100M, 1GiB.")
@click.option("--older-than", type=duration, metavar="AGE", help="Only those made longer ago: 12h, 7d.")
@click.option(
    "--sort",
    type=click.Choice(["age", "size", "saved"]),
    default="age",
    show_default=True,
    help="Newest, largest, or longest to compile first.",
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="No more than N.")
@json_option
@quiet_option
def ls(
    cache_url: str | None,
    namespace: str | None,
    label: str | None,
    kind: str | None,
    larger_than: int | None,
    older_than: float | None,
    sort: str,
    limit: int | None,
) -> None:
    """List entries; with `--quiet` their keys.

    \b
    Examples:
      neuron-env cache ls --label decode
      neuron-env cache ls --sort saved --limit 10
      neuron-env cache ls --kind failure
      neuron-env cache ls --older-than 30d --quiet | xargs neuron-env cache rm -y
    """
    from cache_server.administration.listing import Filter

    _, administration = open_administration(cache_url, namespace)
    out, now = output(), time.time()
    listing = administration.ls(Filter(label, kind, larger_than, older_than), sort=sort, limit=limit)
    if not listing.complete:
        out.warning("the service is still looking through its store: entries may be missing here", "try again soon")
    if listing.obscure:
        out.warning(f"{listing.obscure} manifests cannot be understood", "type `neuron-env cache fsck`")
    if out.mode is Mode.JSON:
        out.json_document({"entries": [entry.to_json() for entry in listing.entries], "total": listing.total})
        return
    key_length = 64 if out.mode is Mode.QUIET else 16
    rows = [
        (
            entry.key[:key_length],
            "failure" if entry.is_failure else "neff",
            size_text(entry.size),
            duration_text(now - entry.created_at),
            duration_text(entry.compile_seconds),
            "pinned" if entry.pinned else "",
            entry.label,
        )
        for entry in listing.entries
    ]
    if rows:
        out.table(("key", "kind", "size", "age", "compiled in", "", "label"), rows)
    where = f"{administration.url}, namespace {administration.namespace}"
    out.note(f"{len(rows)} of {count_text(listing.total, 'entry', 'entries')} in {where}")


@click.command()
@click.argument("key")
@store_options
@json_option
def show(key: str, cache_url: str | None, namespace: str | None) -> None:
    """Show one entry: its files, who made it, its lease; for a failure, the compiler's message.

    \b
    Examples:
      neuron-env cache show 3f9a51
      neuron-env cache show 3f9a51 --json | jq .manifest.files
    """
    _, administration = open_administration(cache_url, namespace)
    out, entry = output(), administration.entry(key)
    manifest, producer = entry.manifest, entry.manifest.producer
    record = entry.record.record if entry.record else None
    if out.mode is Mode.JSON:
        lease = None if record is None else _lease_document(record)
        out.json_document(
            {"key": entry.key, "pinned": entry.pinned, "manifest": manifest.to_json(), "lease": lease},
        )
        return
    fields: dict[str, object] = {
        "key": entry.key,
        "label": manifest.label or None,
        "kind": "remembered failure" if entry.is_failure else "NEFF",
        "made": f"{_moment(manifest.created_at)} in {duration_text(producer.compile_seconds)}",
        "by": f"pid {producer.pid} on {producer.host} (user {producer.user})",
        "compiler": producer.compiler,
        "epoch": manifest.epoch,
        "lease": f"{record.state.value}, epoch {record.epoch}" if record else None,
        "pinned": "yes" if entry.pinned else "no",
    }
    fields |= {name: f"{size_text(blob.size)}, sha256 {blob.sha256}" for name, blob in manifest.files.items()}
    out.record(fields)
    if manifest.failure is not None:
        out.line(f"{manifest.failure.kind.value}, remembered until {_moment(manifest.failure.expires_at)}:")
        for text in manifest.failure.text.splitlines():
            out.line(f"  {text}")


@click.command()
@click.argument("key")
@store_options
@json_option
def explain(key: str, cache_url: str | None, namespace: str | None) -> None:
    """Show what an entry's key is made of: everything that decides the NEFF.

    \b
    Examples:
      neuron-env cache explain 3f9a51
    """
    from cache_server.keys import explain as explain_parts

    _, administration = open_administration(cache_url, namespace)
    out, entry = output(), administration.entry(key)
    if out.mode is Mode.JSON:
        out.json_document({"key": entry.key, "parts": entry.manifest.parts.to_json()})
        return
    out.record({"key": entry.key, **dict(explain_parts(entry.manifest.parts))})


@click.command()
@click.argument("first")
@click.argument("second")
@store_options
@json_option
def diff(first: str, second: str, cache_url: str | None, namespace: str | None) -> None:
    """Say why two compiles have different keys, one line a difference.

    \b
    Examples:
      neuron-env cache diff 3f9a51 b07c22
    """
    from cache_server.keys import diff as key_differences

    _, administration = open_administration(cache_url, namespace)
    out = output()
    left, right = administration.entry(first), administration.entry(second)
    differences = key_differences(left.manifest.parts, right.manifest.parts)
    if out.mode is Mode.JSON:
        out.json_document({"first": left.key, "second": right.key, "differences": differences})
        return
    for text in differences or ["the keys are equal"]:
        out.line(text)


@click.command()
@store_options
@click.option("--watch", is_flag=True, help="Watch owners on other hosts for up to a lease's length.")
@json_option
@quiet_option
def locks(cache_url: str | None, namespace: str | None, watch: bool) -> None:
    """List the compiles that hold a lease: who, at what, for how long, and whether the owner lives.

    \b
    Examples:
      neuron-env cache locks
      neuron-env cache locks --watch

    From one look, the owner's own host alone can tell whether it lives. `--watch` finds out for the others: an owner
    that does not renew its lease for the lease's length is dead.
    """
    _, administration = open_administration(cache_url, namespace)
    out, now = output(), time.time()
    holds = administration.holds()
    if watch:
        holds = administration.watch(holds)
    if out.mode is Mode.JSON:
        out.json_document({"locks": [_hold_document(hold, now) for hold in holds]})
        return
    key_length = 64 if out.mode is Mode.QUIET else 16
    rows = [(hold.seen.key[:key_length], *_hold_row(hold, now)) for hold in holds]
    if rows:
        out.table(("key", "owner", "phase", "age", "epoch", "owner is"), rows)
    out.note(f"{count_text(len(rows), 'held lease')} in {administration.url}, namespace {administration.namespace}")


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


def _usage(usage: Usage) -> dict[str, int]:
    return {"count": usage.count, "bytes": usage.size}


def _entries_record(found: StoreStatus) -> dict[str, object]:
    details = found.details
    if details is None:
        return {"entries": f"{found.entries}, {found.pinned} pinned; see `--details`"}
    neffs = details.neffs
    return {
        "entries": f"{count_text(neffs.count, 'NEFF')}, {size_text(neffs.size)}, {found.pinned} pinned",
        "a hit saves": f"{duration_text(details.saved_seconds / max(neffs.count, 1))} on average",
        "failures": f"{details.failures} remembered, {details.expired_failures} of them expired",
        "not understood": details.obscure or None,
    }


def _service_record(service: ServiceStatus) -> dict[str, object]:
    rate, age = service.hit_rate, service.index_age
    asked = service.hits + service.misses
    state = "draining" if service.draining else "up" if service.reachable else "up, but its store does not answer"
    stored = None
    if service.stored is not None:
        limit = "no limit" if service.capacity is None else size_text(service.capacity)
        stored = f"{size_text(service.stored)} of {limit}, {size_text(service.reserved or 0)} promised"
    quota = "no quota" if service.quota is None else f"a quota of {size_text(service.quota)}"
    return {
        "service": f"{service.replica}, version {service.version}, {state} for {duration_text(service.uptime)}",
        "store has": stored,
        "namespace has": f"{size_text(service.used)} of {quota}",
        "hits": None if rate is None else f"{rate:.1%} of {asked} lookups",
        "waiters": service.waiters,
        "index": "not complete yet" if age is None else f"looked through the store {duration_text(age)} ago",
    }


def _status_document(found: StoreStatus) -> dict[str, Any]:
    now, details, service = time.time(), found.details, found.service
    return {
        "leases": found.leases,
        "leases_verdict": found.verdict,
        "entries": found.entries,
        "neffs": details and _usage(details.neffs),
        "failures": details and {"count": details.failures, "expired": details.expired_failures},
        "pinned": found.pinned,
        "blobs": found.blobs and _usage(found.blobs),
        "quarantined": found.quarantined and _usage(found.quarantined),
        "not_understood": details and details.obscure,
        "compile_seconds": details and details.saved_seconds,
        "in_flight": [_hold_document(hold, now) for hold in found.holds],
        "service": None if service is None else _service_document(service),
    }


def _service_document(service: ServiceStatus) -> dict[str, Any]:
    return {
        "version": service.version,
        "replica": service.replica,
        "uptime_seconds": service.uptime,
        "draining": service.draining,
        "reachable": service.reachable,
        "capacity_bytes": service.capacity,
        "stored_bytes": service.stored,
        "reserved_bytes": service.reserved,
        "quota_bytes": service.quota,
        "namespace_bytes": service.used,
        "hits": service.hits,
        "misses": service.misses,
        "hit_rate": service.hit_rate,
        "waiters": service.waiters,
        "index_age_seconds": service.index_age,
    }


def _lease_document(record: LeaseRecord) -> dict[str, Any]:
    return {
        "state": record.state.value,
        "epoch": record.epoch,
        "owner": record.owner.to_json(),
        "phase": record.phase,
        "acquired_at": record.acquired_at,
        "lease_seconds": record.lease_seconds,
        "note": record.note or None,
    }


def _hold_document(hold: Hold, now: float) -> dict[str, Any]:
    record = hold.seen.record
    lease = {"error": hold.seen.why} if record is None else _lease_document(record)
    age = None if record is None else max(0.0, now - record.acquired_at)
    return {"key": hold.seen.key, "owner_is": hold.life.value, "age_seconds": age, **lease}


def _hold_row(hold: Hold, now: float) -> tuple[object, ...]:
    record = hold.seen.record
    if record is None:
        return ("not understood", hold.seen.why, "", "", hold.life.value)
    return (record.owner, record.phase, duration_text(now - record.acquired_at), record.epoch, hold.life.value)
