"""Garbage collection: what a store can do without."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from cache_server.administration.removal import Kind, Plan, Step, blind_note, plan_entries
from cache_server.administration.retention import Candidate, coldest, overdue
from cache_server.administration.snapshot import Entry, Snapshot, take_snapshot
from cache_server.administration.usage import Use, read_uses
from cache_server.backends import Backend, Found
from cache_server.leases.record import State
from cache_server.storage import Storage

HOUR = 3600.0
WEEK = 7 * 24 * HOUR
CREATION_NOTE = "oldest means made first: the store knows of no last uses, which only the service records"


@dataclass(frozen=True, slots=True)
class Policy:
    """What is to go. Times are seconds, None is no limit.

    max_bytes: what the namespace's entries may name; those not used for longest go until the rest fits
    older_than: entries made longer ago than this go
    unused_for: entries last used longer ago than this go
    grace: how old a blob must be that nothing names, since it may be a publish on its way
    keep_staged: how long a writer may take before its files count as left behind; less makes live writers fail
    keep_records: how long a lease record without a result is kept
    keep_quarantined: how long damaged files are kept for a look at them
    """

    max_bytes: int | None = None
    older_than: float | None = None
    grace: float = HOUR
    keep_staged: float = HOUR
    keep_records: float = WEEK
    keep_quarantined: float = WEEK
    unused_for: float | None = None


def plan_collection(storage: Storage, policy: Policy, *, now: float) -> Plan:
    """Looks at the store and decides; changes nothing. `now` is wall time. Raises StoreError."""
    backend = storage.store.backend
    # Before the snapshot, so that what is staged now has become a blob by then or is still on its way.
    leftovers = plan_leftovers(backend, policy, now=now)
    uses = read_uses(backend)
    plan = choose(take_snapshot(storage), storage.store.namespace, policy, now=now, uses=uses)
    return Plan(plan.steps + leftovers, plan.notes)


def plan_leftovers(backend: Backend, policy: Policy, *, now: float) -> tuple[Step, ...]:
    """Steps that remove what writers that died and damaged files left. Raises StoreError."""
    return tuple(
        Step(kind, found.path.partition("/")[2], found.size, reason, found)
        for kind, place, age, reason in (
            (Kind.STAGED, "staging", policy.keep_staged, "left behind by a writer that died"),
            (Kind.QUARANTINED, "quarantine", policy.keep_quarantined, "damaged, and kept long enough"),
        )
        for found in backend.scan(place)
        if found.modified_at < now - age
    )


def choose(
    snapshot: Snapshot,
    namespace: str,
    policy: Policy,
    *,
    now: float,
    uses: Mapping[tuple[str, str], Use] | None = None,
) -> Plan:
    """The part of the plan that follows from the snapshot and the known last uses alone."""
    notes = []
    entries = {entry.key: entry for entry in snapshot.within(namespace)}
    candidates = [_candidate(entry, uses or {}) for entry in entries.values()]
    chosen = {}
    for candidate in candidates:
        reason = overdue(candidate, now=now, older_than=policy.older_than, unused_for=policy.unused_for)
        if reason is not None:
            chosen[candidate.key] = (entries[candidate.key], reason)
    if policy.max_bytes is not None:
        remaining = [candidate for candidate in candidates if candidate.key not in chosen]
        evicted, left = _evict(remaining, policy.max_bytes)
        chosen |= {candidate.key: (entries[candidate.key], "the store is over its size") for candidate in evicted}
        if left > policy.max_bytes:
            notes.append(f"pinned entries alone have {left:,} bytes, more than the limit of {policy.max_bytes:,}")
    if not uses and (policy.max_bytes is not None or policy.unused_for is not None):
        notes.insert(0, CREATION_NOTE)
    steps = plan_entries(snapshot, chosen.values())
    if snapshot.blind:
        notes += blind_note(snapshot)
    else:
        planned = {step.name for step in steps if step.kind is Kind.BLOB}
        steps += _orphans(snapshot, planned, before=now - policy.grace)
    steps += [
        Step(Kind.RECORD, seen.key, 0, "free, and unused for long", seen)
        for seen in snapshot.records
        if seen.namespace == namespace
        and seen.record is not None
        and seen.record.state is State.FREE
        and seen.record.acquired_at < now - policy.keep_records
    ]
    return Plan(tuple(steps), tuple(notes))


def _candidate(entry: Entry, uses: Mapping[tuple[str, str], Use]) -> Candidate:
    manifest, use = entry.manifest, uses.get((entry.namespace, entry.key))
    return Candidate(
        entry.namespace,
        entry.key,
        entry.blobs,
        created_at=manifest.created_at,
        used_at=max(manifest.created_at, use.at if use else 0.0),
        expires_at=manifest.failure.expires_at if manifest.failure else None,
        pinned=entry.pinned,
    )


def _evict(candidates: list[Candidate], max_bytes: int) -> tuple[list[Candidate], int]:
    """The coldest entries without which the rest has at most `max_bytes`, and how much the rest has."""
    users = Counter(blob for candidate in candidates for blob in candidate.blobs)
    total = sum(blob.size for blob in users)
    in_order = sorted(candidates, key=lambda candidate: candidate.coldness)
    evicted = list(coldest(in_order, total - max_bytes, users.__getitem__))
    gone = {candidate.key for candidate in evicted}
    kept = {blob for candidate in candidates if candidate.key not in gone for blob in candidate.blobs}
    return evicted, sum(blob.size for blob in kept)


def _orphans(snapshot: Snapshot, planned: set[str], *, before: float) -> list[Step]:
    named = snapshot.references()

    def unused(sha256: str, found: Found) -> bool:
        return sha256 not in named and sha256 not in planned and found.modified_at < before

    return [
        Step(Kind.BLOB, sha256, found.size, "no entry names it", found)
        for sha256, found in sorted(snapshot.blobs.items())
        if unused(sha256, found)
    ]
