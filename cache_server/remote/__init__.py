"""The shared tier behind an HTTP service: entries, blobs and leases by its API, version 1."""

from __future__ import annotations
