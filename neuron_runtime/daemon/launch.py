"""Starts a daemon in the background and waits until it answers."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from neuron_runtime.protocol.paths import RuntimePaths
from neuron_runtime.status import NrtError, NrtStatus

START_TIMEOUT_S = 30.0
ALREADY_RUNNING = 3  # the exit status of a daemon that found another one
_MAX_LOG_BYTES = 1 << 20


def start_daemon(paths: RuntimePaths, environ: Mapping[str, str]) -> int:
    """The daemon's pid, once its socket answers; 0 when another process had started one meanwhile.

    The daemon reads its settings from `environ`. Raises NrtError(NRT_UNINITIALIZED) with the end of its log.
    """
    paths.prepare()
    read, write = os.pipe()
    with _open_log(paths.log) as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "neuron_runtime.daemon", "--ready-fd", str(write)],
            env={**environ, "NEURON_ENV_RUNTIME_DIR": str(paths.directory)},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(write,),
            start_new_session=True,
        )
    os.close(write)
    try:
        answered, _, _ = select.select([read], [], [], START_TIMEOUT_S)
        listens = bool(answered and os.read(read, 1))
    finally:
        os.close(read)
    if listens:
        _forget(process)
        return process.pid
    if not answered:
        process.kill()
    code = process.wait()
    if code == ALREADY_RUNNING:
        return 0
    raise _failed(
        paths, f"ended with exit status {code}" if answered else f"did not answer within {START_TIMEOUT_S:g} s"
    )


def _forget(process: subprocess.Popen[bytes]) -> None:
    """The daemon outlives this process; without this, Popen's destructor warns that it still runs."""
    process.returncode = 0


def _open_log(path: Path) -> BinaryIO:
    """The log, appended to; begun anew when the last runs have filled it."""
    full = path.exists() and path.stat().st_size > _MAX_LOG_BYTES
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | (os.O_TRUNC if full else 0), 0o600)
    return os.fdopen(descriptor, "ab")


def _failed(paths: RuntimePaths, what: str) -> NrtError:
    try:
        tail = paths.log.read_bytes()[-600:].decode(errors="replace").strip()
    except OSError:
        tail = ""
    return NrtError(
        NrtStatus.UNINITIALIZED,
        f"the runtime daemon {what}" + (f"; its log ends:\n{tail}" if tail else ""),
        hint=f"read {paths.log}, or run `neuron-env runtime start --foreground`",
    )
