"""neuron-env cache jobs: what jobs asked for."""

from __future__ import annotations

import time

import click

from .cache import confirm, store_options
from .cache_changes import YES
from .cache_transfer import open_cache, shared_tier
from .output import Mode, json_option, output, quiet_option
from .units import count_text, duration, duration_text


@click.group()
def jobs() -> None:
    """Look into what the processes of a job asked for.

    \b
    Examples:
      neuron-env cache jobs ls
      neuron-env cache jobs show llama-70b
      neuron-env cache jobs rm llama-70b --older-than 30d -y

    A process with `NEURON_ENV_JOB` set writes down its keys; `neuron-env cache prefetch --job` reads them.
    """


@jobs.command()
@store_options
@json_option
@quiet_option
def ls(cache_url: str | None, namespace: str | None) -> None:
    """List jobs.

    \b
    Examples:
      neuron-env cache jobs ls
    """
    from cache_server.jobs.record import merge
    from cache_server.jobs.shelf import read_records, shelf_of

    storage = shared_tier(open_cache(cache_url, namespace))
    out, shelf, now = output(), shelf_of(storage), time.time()
    merged = [merge(name, (record for _, record in read_records(shelf, name))) for name in shelf.names()]
    known = [job for job in merged if job is not None]
    if out.mode is Mode.JSON:
        documents = [
            {
                "job": job.name,
                "keys": len(job.keys),
                "processes": job.processes,
                "hosts": job.hosts,
                "started_at": job.started_at,
                "updated_at": job.updated_at,
            }
            for job in known
        ]
        out.json_document({"jobs": documents})
        return
    rows = [(job.name, len(job.keys), job.processes, job.hosts, duration_text(now - job.updated_at)) for job in known]
    if rows:
        out.table(("job", "keys", "processes", "hosts", "last seen"), rows)
    out.note(f"{count_text(len(rows), 'job')} in {storage.store.url}, namespace {storage.store.namespace}")


@jobs.command()
@click.argument("name")
@store_options
@json_option
@quiet_option
def show(name: str, cache_url: str | None, namespace: str | None) -> None:
    """Show the keys of a job, and which of them the store has.

    \b
    Examples:
      neuron-env cache jobs show llama-70b
      neuron-env cache jobs show llama-70b --quiet | xargs neuron-env cache pin
    """
    from cache_server.jobs.shelf import read_job, shelf_of

    storage = shared_tier(open_cache(cache_url, namespace))
    out, job = output(), read_job(shelf_of(storage), name)
    found = storage.store.read_manifests(job.keys)
    states = {key: "missing" if key not in found else "failure" if found[key].failure else "neff" for key in job.keys}
    if out.mode is Mode.JSON:
        keys = [{"key": key, "label": label, "state": states[key]} for key, label in job.keys.items()]
        out.json_document({"job": job.name, "processes": job.processes, "hosts": job.hosts, "keys": keys})
        return
    key_length = 64 if out.mode is Mode.QUIET else 16
    out.table(
        ("key", "in the store", "label"), [(key[:key_length], states[key], label) for key, label in job.keys.items()]
    )
    asked_by = f"{count_text(job.processes, 'process', 'processes')} on {count_text(job.hosts, 'host')}"
    out.note(f"{count_text(len(job.keys), 'key')}, asked for by {asked_by}")


@jobs.command()
@click.argument("name")
@click.option("--older-than", type=duration, metavar="AGE", help="Only the records last written longer ago: 30d.")
@YES
@store_options
@json_option
def rm(name: str, older_than: float | None, yes: bool, cache_url: str | None, namespace: str | None) -> None:
    """Forget what a job asked for. Its entries stay.

    \b
    Examples:
      neuron-env cache jobs rm llama-70b
      neuron-env cache jobs rm llama-70b --older-than 30d -y
    """
    from cache_server.jobs.shelf import read_job, read_records, shelf_of

    storage = shared_tier(open_cache(cache_url, namespace, writes=True))
    shelf, before = shelf_of(storage), time.time() - (older_than or 0.0)
    read_job(shelf, name)
    chosen = [part for part, record in read_records(shelf, name) if older_than is None or record.updated_at < before]
    if chosen:
        confirm(f"forget {len(chosen)} records of job {name}", yes=yes)
    for part in chosen:
        shelf.remove(name, part)
    out = output()
    if out.mode is Mode.JSON:
        out.json_document({"job": name, "removed": len(chosen)})
    else:
        out.line(f"removed {len(chosen)} records of job {name}")
