"""Leases: at most one process of the fleet compiles a key, and a dead one does not hold it for long."""

from __future__ import annotations

from cache_server.leases.coordinator import Coordinator, HeldLease, RecordCoordinator, Watch
from cache_server.leases.heartbeat import Heartbeat
from cache_server.leases.lease import Lease
from cache_server.leases.observer import Held, Observer, Settled, Vacant, Verdict
from cache_server.leases.owner import Owner
from cache_server.leases.record import LeaseRecord
from cache_server.leases.records import RecordStore, Versioned

__all__ = [
    "Coordinator",
    "Heartbeat",
    "Held",
    "HeldLease",
    "Lease",
    "LeaseRecord",
    "Observer",
    "Owner",
    "RecordCoordinator",
    "RecordStore",
    "Settled",
    "Vacant",
    "Verdict",
    "Versioned",
    "Watch",
]
