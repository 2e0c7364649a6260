"""Chance for pauses, so that many who wait for one thing do not come back at once."""

from __future__ import annotations

import random

# Not the module's own generator: a job's seed is the job's, and its numbers must not depend on a cache's pauses.
_random = random.SystemRandom()


def jitter(low: float, high: float) -> float:
    """A number between the two, in seconds or whatever they are."""
    return _random.uniform(low, high)
