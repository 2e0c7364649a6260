"""Asks a running daemon for its snapshot, or tells it to stop."""

from __future__ import annotations

import os
import select
from typing import Any

from neuron_runtime.client.control import connect_daemon
from neuron_runtime.protocol.datagrams import PROTOCOL
from neuron_runtime.protocol.paths import RuntimePaths
from neuron_runtime.status import NrtError, NrtStatus

STOP_TIMEOUT_S = 10.0


def take_snapshot(paths: RuntimePaths) -> dict[str, Any] | None:
    """Machine, processes, cores, models; None when no daemon runs."""
    daemon = connect_daemon(paths)
    if daemon is None:
        return None
    try:
        return daemon.request({"verb": "snapshot", "protocol": PROTOCOL}).body
    finally:
        daemon.close()


def stop_daemon(paths: RuntimePaths) -> int | None:
    """The pid of the daemon that has ended; None when none ran. Raises NrtError(NRT_TIMEOUT)."""
    daemon = connect_daemon(paths)
    if daemon is None:
        return None
    try:
        pid = int(daemon.request({"verb": "stop", "protocol": PROTOCOL}).body["stopping"])
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return pid
        try:
            if not select.select([descriptor], [], [], STOP_TIMEOUT_S)[0]:
                raise NrtError(NrtStatus.TIMEOUT, f"the runtime (pid {pid}) did not end within {STOP_TIMEOUT_S:g} s")
        finally:
            os.close(descriptor)
        return pid
    finally:
        daemon.close()
