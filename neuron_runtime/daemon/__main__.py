"""`python -m neuron_runtime.daemon --ready-fd N`: the daemon's process. Started by `daemon.launch`."""

from __future__ import annotations

import argparse
import fcntl
import logging
import os
import socket
import sys

from neuron_runtime.daemon.launch import ALREADY_RUNNING
from neuron_runtime.daemon.settings import DaemonSettings
from neuron_runtime.errors import NeuronEnvError
from neuron_runtime.protocol.paths import RuntimePaths, runtime_paths


def main() -> int:
    parser = argparse.ArgumentParser(prog="neuron-env-runtime")
    parser.add_argument("--ready-fd", type=int, help="a pipe that gets a byte once the socket answers")
    try:
        return serve_foreground(parser.parse_args().ready_fd)
    except NeuronEnvError as error:
        hint = f"\n\nhint: {error.hint}" if error.hint else ""
        print(f"error: {error}{hint}", file=sys.stderr)  # noqa: T201
        return 1


def serve_foreground(ready_fd: int | None = None) -> int:
    """Serves in this process, with its log on stderr, until stopped; the exit status. Raises NeuronEnvError."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s pid %(process)d %(message)s"
    )
    settings = DaemonSettings.from_environment()
    paths = runtime_paths()
    paths.prepare()
    return _serve(paths, settings, ready_fd)


def _serve(paths: RuntimePaths, settings: DaemonSettings, ready_fd: int | None) -> int:
    # Whoever holds the lock is the daemon; the kernel releases it however that process ends. So the socket file
    # of a dead daemon can be told from a live one's, and two that start together never both listen.
    lock = os.open(paths.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(f"error: a runtime already serves {paths.socket}", file=sys.stderr)  # noqa: T201
        return ALREADY_RUNNING
    from neuron_runtime.daemon.server import Server

    paths.socket.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(paths.socket))
        listener.listen(512)
        if ready_fd is not None:
            os.write(ready_fd, b"\n")
            os.close(ready_fd)
        try:
            Server(listener, settings).serve()
        finally:
            paths.socket.unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
