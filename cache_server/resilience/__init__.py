"""Living with stores that are slow, broken or away: bounded efforts, retries, a circuit breaker."""

from __future__ import annotations
