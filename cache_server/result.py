"""What `get_or_compile` tells its caller, during the wait and after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """Where a NEFF came from."""

    LOCAL_HIT = "local_hit"
    SHARED_HIT = "shared_hit"
    COMPILED = "compiled"
    COMPILED_UNCACHED = "compiled_uncached"  # compiled, but not published to the shared tier; `reason` says why


class Phase(StrEnum):
    """The steps of an owner, in order. Each is announced just before it begins, or just after what it names."""

    ACQUIRED = "acquired"
    COMPILING = "compiling"
    STORING = "storing"
    PUBLISHING = "publishing"
    PUBLISHED = "published"  # the lease record carries the manifest: no crash can lose the result any more
    LISTED = "listed"  # the manifest stands in the store
    KEPT = "kept"  # and the NEFF in the local tier


@dataclass(frozen=True, slots=True)
class CacheResult:
    """A NEFF and how it was come by. Times are seconds.

    `waited_for` names the owner that was waited for, `saved_seconds` the compile that was not repeated, `epoch` the
    lease's under which the entry was made (0: none), `took_over` that a dead owner's work was done again here,
    `outputs` the other files of the compile, where it was one that has any.
    """

    neff: bytes
    key: str
    outcome: Outcome
    waited_seconds: float = 0.0
    waited_for: str = ""
    compile_seconds: float = 0.0
    saved_seconds: float = 0.0
    epoch: int = 0
    took_over: bool = False
    reason: str = ""
    outputs: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A sign for a person that a job waits for another one's compile. Times are seconds.

    `for_slot`: it is not the key that is waited for, but one of this host's compile slots, which `owner` have.
    """

    key: str
    label: str
    owner: str
    phase: str
    age_seconds: float
    waited_seconds: float
    gives_up_in: float
    for_slot: bool = False
