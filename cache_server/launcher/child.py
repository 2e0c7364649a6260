"""The real compiler as a child: its streams pass through, signals reach it, and it does not outlive the launcher."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Sequence

from cache_server.launcher.signals import Signals

_TAIL = 64 << 10  # bytes of its standard error that are kept
_PIECE = 64 << 10


def run_compiler(command: Sequence[str], signals: Signals, *, stdin: bytes | None) -> tuple[int, str]:
    """Runs the command to its end; returns its status (negative for a signal) and the tail of its standard error.

    Standard output is the caller's own. Where both streams are one, as after `2>&1`, both come through here, so that
    they keep their order. The compiler has a process group of its own, which gets the signals that this process gets,
    and is killed with it. Raises OSError where it cannot be started.
    """
    source, sink = os.pipe()
    together = _same(1, 2)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        with contextlib.ExitStack() as files:
            files.callback(os.close, sink)
            given = None
            if stdin is not None:
                given = files.enter_context(tempfile.TemporaryFile())
                given.write(stdin)
                given.seek(0)
            process = subprocess.Popen(
                command,
                stdin=given,
                stdout=sink if together else None,
                stderr=sink,
                process_group=0,
                preexec_fn=_as_child(blocked, os.getpid()),
            )
    except BaseException:
        os.close(source)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        raise
    with signals.for_group(process.pid):
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        try:
            said = _pass_on(source, process.pid)
        finally:
            os.close(source)
        status = process.wait()
    return status, said.decode(errors="replace")


def _as_child(mask: set[int | signal.Signals], parent: int) -> Callable[[], None]:
    """What the child does before it becomes the compiler."""
    from neuron_runtime.executor.lifeline import die_with_parent

    def prepare() -> None:
        die_with_parent(parent)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    return prepare


def _pass_on(source: int, pid: int) -> bytes:
    """Copies what the compiler says to standard error until it has ended, and returns the tail of it.

    Its end counts, not that of the stream: a process that it left behind may hold that open for good.
    """
    os.set_blocking(source, False)
    tail: deque[bytes] = deque()
    kept = 0
    ended = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(source, select.POLLIN)
        poll.register(ended, select.POLLIN)
        open_streams = True
        while open_streams:
            over = any(fd == ended for fd, _ in poll.poll())
            while piece := _read(source):
                if not _write(piece):
                    open_streams = False  # nobody listens, which the compiler is to notice as it would without us
                    break
                tail.append(piece)
                kept += len(piece)
                while kept - len(tail[0]) >= _TAIL:
                    kept -= len(tail.popleft())
            if piece == b"":  # the end of the stream; None is a pause
                poll.unregister(source)
                poll.poll()
                break
            if over:
                break
    finally:
        os.close(ended)
    return b"".join(tail)[-_TAIL:]


def _read(source: int) -> bytes | None:
    try:
        return os.read(source, _PIECE)
    except BlockingIOError:
        return None


def _write(piece: bytes) -> bool:
    view = memoryview(piece)
    try:
        while view:
            view = view[os.write(2, view) :]
    except BlockingIOError:
        select.select([], [2], [])
        return _write(bytes(view))
    except OSError:
        return False
    return True


def _same(one: int, other: int) -> bool:
    try:
        return os.path.samestat(os.fstat(one), os.fstat(other))
    except OSError:
        return False
