"""What every worker process does: answer one frame with another until its caller is gone.

`python -m MODULE LIFELINE [MEMORY_LIMIT]`, frames on standard input and output; `WarmWorker` starts it.
"""

from __future__ import annotations

import fcntl
import os
import resource
import select
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from neuron_runtime.compiler import frames
from neuron_runtime.compiler.errors import CompileFailure, FailureKind

Serve = Callable[[Mapping[str, Any], bytes], tuple[dict[str, Any], bytes]]
"""A request and its payload to a reply and its own. Raises CompileFailure."""


def serve(arguments: Sequence[str], prepare: Callable[[], Serve], *, name: str) -> int:
    """The exit status. `prepare` imports what is slow to import; `name` is for messages, such as "the compiler"."""
    lifeline, memory_limit = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 0
    inbox, outbox = _claim_streams()
    _die_with(lifeline)
    try:
        # Everything is imported and started before the limit is set, so that the limit is for a
        # request's own memory, and it is the first request that is timed, not the import.
        answer = prepare()
        if memory_limit:
            _limit_memory(memory_limit)
    except CompileFailure as failure:
        frames.send(outbox, _refusal(failure))
        return 0
    frames.send(outbox, {"ready": True})
    while True:
        try:
            frame = frames.receive(inbox)
            if frame is None:
                return 0
            reply, payload = answer(*frame)
        except MemoryError:
            frames.send(outbox, _out_of_memory(name))
            # Part of a frame may be unread, and what is left of memory is anybody's guess.
            return 0
        except CompileFailure as failure:
            reply, payload = _refusal(failure), b""
        frames.send(outbox, reply, payload)


def _claim_streams() -> tuple[int, int]:
    """Private copies of standard input and output; the C++ below may print, and must not print into a frame."""
    inbox, outbox = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return inbox, outbox


def _die_with(lifeline: int) -> None:
    """Have the kernel kill this process when the caller's end of the pipe closes, whatever this process is doing.

    A thread could not: a compile may hold the interpreter's lock, or the process may be stopped. The parent death
    signal could not either: it comes when the *thread* that started this process ends.
    """
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    poll = select.poll()
    poll.register(lifeline, 0)
    if poll.poll(0):
        os._exit(1)  # closed before the kernel was asked to watch it


def _limit_memory(count: int) -> None:
    """Allow `count` bytes of private writable memory beyond what this process has already.

    Not of address space: each thread reserves far more of that than it ever uses.
    """
    held = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (held + count, held + count))


def _refusal(failure: CompileFailure) -> dict[str, Any]:
    return {"failure": failure.kind.value, "message": failure.message, "hint": failure.hint}


def _out_of_memory(name: str) -> dict[str, Any]:
    return {"failure": FailureKind.OUT_OF_MEMORY.value, "message": f"{name} ran out of memory", "hint": None}
