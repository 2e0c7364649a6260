"""What one process of a job asked for: a small document, written by it alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from cache_server.fields import Fields, encode_object, parse_object
from cache_server.names import check_digest

SCHEMA = 1
RECORD_LIMIT = 8 << 20  # bytes
KEY_LIMIT = 10_000  # keys a process
_LABEL_LIMIT = 200  # characters
_SECONDS_LIMIT = 1e12


@dataclass(frozen=True, slots=True)
class JobRecord:
    """`keys` are labels by key; `dropped` is how many more keys there were than a record holds.

    Times are seconds since 1970.
    """

    job: str
    host: str
    pid: int
    user: str
    started_at: float
    updated_at: float
    keys: Mapping[str, str] = field(default_factory=dict)
    dropped: int = 0

    def encode(self) -> bytes:
        return encode_object(
            {
                "schema": SCHEMA,
                "job": self.job,
                "host": self.host,
                "pid": self.pid,
                "user": self.user,
                "started_at": self.started_at,
                "updated_at": self.updated_at,
                "keys": {key: label[:_LABEL_LIMIT] for key, label in self.keys.items()},
                "dropped": self.dropped,
            }
        )


def decode_record(data: bytes) -> JobRecord:
    """Raises ValueError that names what is wrong."""
    fields = parse_object(data, limit=RECORD_LIMIT)
    if fields.integer("schema", low=1, high=10**6) != SCHEMA:
        raise ValueError("written by a later version")
    labels = fields.object("keys")
    if len(labels.items()) > KEY_LIMIT:
        raise ValueError(f"keys has more than {KEY_LIMIT} members")
    return JobRecord(
        job=fields.text("job", limit=128),
        host=fields.text("host", limit=300),
        pid=fields.integer("pid", low=0, high=1 << 62),
        user=fields.text("user", limit=300),
        started_at=fields.number("started_at", low=0, high=_SECONDS_LIMIT),
        updated_at=fields.number("updated_at", low=0, high=_SECONDS_LIMIT),
        keys={check_digest(key): _label(labels, key) for key, _ in labels.items()},
        dropped=fields.integer("dropped", low=0, high=1 << 62),
    )


@dataclass(frozen=True, slots=True)
class Job:
    """All that is known of one job: what its processes wrote down, together. Times are seconds since 1970."""

    name: str
    processes: int
    hosts: int
    started_at: float
    updated_at: float
    keys: Mapping[str, str]
    dropped: int


def merge(name: str, records: Iterable[JobRecord]) -> Job | None:
    """The job that `records` are of; None if there are none. The latest label of a key stays."""
    known = sorted(records, key=lambda record: record.updated_at)
    if not known:
        return None
    keys: dict[str, str] = {}
    for record in known:
        for key, label in record.keys.items():
            keys[key] = label or keys.get(key, "")
    return Job(
        name=name,
        processes=len(known),
        hosts=len({record.host for record in known}),
        started_at=min(record.started_at for record in known),
        updated_at=known[-1].updated_at,
        keys=dict(sorted(keys.items())),
        dropped=sum(record.dropped for record in known),
    )


def _label(labels: Fields, key: str) -> str:
    return labels.text(key, limit=_LABEL_LIMIT)
