"""Room in the store: promised before a byte is accepted, made by evicting, kept by a collector in the background."""

from __future__ import annotations

from cache_server.service.space.collector import Collector
from cache_server.service.space.disk import Disk, DiskUse
from cache_server.service.space.eviction import Evictor
from cache_server.service.space.inflight import InFlight
from cache_server.service.space.ledger import Ledger, Limits
from cache_server.service.space.room import Room, Space

__all__ = ["Collector", "Disk", "DiskUse", "Evictor", "InFlight", "Ledger", "Limits", "Room", "Space"]
