"""Versions, always marked as simulated: nothing of ours may be taken for hardware."""

from __future__ import annotations

VERSION = "0.1.0"
RUNTIME_VERSION = f"{VERSION}+sim"
