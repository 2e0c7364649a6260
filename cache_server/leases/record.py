"""The lease record of one key, and the only ways in which it changes. Pure: no clock, no store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from cache_server.fields import encode_object, parse_object
from cache_server.leases.owner import Owner
from cache_server.manifest import MANIFEST_LIMIT, Manifest, manifest_from_fields

_RECORD_LIMIT = MANIFEST_LIMIT + 64 * 1024
_MAX_LEASE_SECONDS = 3600.0


class State(StrEnum):
    """What a record says of its key."""

    HELD = "held"  # its owner is compiling
    SETTLED = "settled"  # its owner published `manifest`
    FREE = "free"  # its owner gave up


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """One version of a key's lease. Never deleted in use, so epochs only grow.

    `token` is random for each acquisition: two with equal tokens are the same one. `beat` counts heartbeats, so that
    each renewal is a visible change. `lease_seconds` is a duration, not a deadline: clocks of hosts differ.
    `settled` carries the published manifest itself, which makes publishing one compare-and-swap: an owner whose lease
    was taken over cannot publish however late it wakes, and whoever finds a settled record can finish what its owner
    was killed before finishing.
    """

    state: State
    epoch: int
    token: str
    owner: Owner
    lease_seconds: float
    phase: str
    acquired_at: float  # seconds since 1970, for people
    beat: int = 0
    note: str = ""  # why a free record's owner gave up
    label: str = ""  # what the graph is called, for people
    settled: Manifest | None = None

    def renewed(self, phase: str) -> LeaseRecord:
        return replace(self, beat=self.beat + 1, phase=phase)

    def published(self, manifest: Manifest) -> LeaseRecord:
        return replace(self, state=State.SETTLED, phase="published", settled=manifest)

    def released(self, note: str) -> LeaseRecord:
        return replace(self, state=State.FREE, phase="released", note=note[:1000])

    def freed(self, note: str) -> LeaseRecord:
        """For an administrator: the key is to be had again, and whoever holds or settled this lease is fenced."""
        return replace(self, state=State.FREE, phase="released", note=note[:1000], settled=None)

    def encode(self) -> bytes:
        return encode_object({**self.public(), "token": self.token})

    def public(self) -> dict[str, Any]:
        """The record as anybody may see it: all but the token, which is its holder's."""
        value: dict[str, Any] = {
            "state": self.state.value,
            "epoch": self.epoch,
            "owner": self.owner.to_json(),
            "lease_seconds": self.lease_seconds,
            "phase": self.phase,
            "acquired_at": self.acquired_at,
            "beat": self.beat,
            "note": self.note,
            "label": self.label,
        }
        if self.settled is not None:
            value["manifest"] = self.settled.to_json()
        return value


def decode_public_record(value: Mapping[str, Any], *, key: str) -> LeaseRecord:
    """Reads what `LeaseRecord.public` gave; its token, which is its holder's alone, is empty. Raises ValueError."""
    return decode_record(encode_object({"token": "", **value}), key=key)


def decode_record(data: bytes, *, key: str) -> LeaseRecord:
    """Reads the lease record of `key`. Raises ValueError that names what is wrong with it."""
    fields = parse_object(data, limit=_RECORD_LIMIT)
    manifest = fields.optional_object("manifest")
    record = LeaseRecord(
        state=State(fields.text("state", limit=20)),
        epoch=fields.integer("epoch", low=0, high=1 << 62),
        token=fields.text("token", limit=100),
        owner=Owner.from_fields(fields.object("owner")),
        lease_seconds=fields.number("lease_seconds", low=0.0, high=_MAX_LEASE_SECONDS),
        phase=fields.text("phase", limit=100),
        acquired_at=fields.number("acquired_at", low=0, high=1e12),
        beat=fields.integer("beat", low=0, high=1 << 62),
        note=fields.text("note", limit=1000),
        label=fields.text("label", limit=200, default=""),
        settled=None if manifest is None else manifest_from_fields(manifest, key=key),
    )
    if (record.state is State.SETTLED) != (record.settled is not None):
        raise ValueError("a record is settled exactly when it carries a manifest")
    return record
