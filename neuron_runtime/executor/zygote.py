"""The process executors are forked from.

Importing jaxlib costs most of a second and a hundred megabytes. The zygote pays both once, before any thread
exists, and forks: a new executor is ready in some ten milliseconds and shares the imported pages.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys

from neuron_runtime.executor.lifeline import die_with_parent
from neuron_runtime.protocol import datagrams


def run_zygote(daemon: socket.socket) -> None:
    """Forks an executor for each `spawn` message; ends when the daemon's socket closes."""
    # OpenBLAS would start threads when NumPy is imported, and a fork copies no thread but its locks.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    from neuron_runtime.executor.process import run_executor
    from neuron_runtime.xla import preload

    preload()
    gc.collect()
    gc.freeze()
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    poller = select.poll()
    poller.register(daemon, select.POLLIN)
    poller.register(wake_read, select.POLLIN)
    zygote = os.getpid()
    while True:
        ready = {fd for fd, _ in poller.poll()}
        if wake_read in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake_read, 4096)
            _report_exits(daemon)
        if daemon.fileno() not in ready:
            continue
        message = datagrams.receive(daemon)
        if message is None:
            return
        (end,) = message.fds
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.close(wake_read)
            os.close(wake_write)
            daemon.close()
            die_with_parent(zygote)
            run_executor(socket.socket(fileno=end))
        os.close(end)
        datagrams.send(daemon, {"spawned": message.body["spawn"], "pid": pid})


def _report_exits(daemon: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        datagrams.send(daemon, {"exited": pid, "code": os.waitstatus_to_exitcode(status)})


def main() -> None:
    """`python -m neuron_runtime.executor.zygote FD PARENT`, started by the daemon."""
    die_with_parent(int(sys.argv[2]))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the daemon ends this process, by closing its socket
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        run_zygote(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()
