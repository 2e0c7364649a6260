"""The compile worker: a process that imports XLA once and answers one frame with another until its caller is gone.

`python -m neuron_runtime.compiler.worker LIFELINE [MEMORY_LIMIT]`, frames on standard input and output. `WarmCompiler`
starts it; nobody else needs to.
"""

from __future__ import annotations

import fcntl
import os
import resource
import select
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from neuron_runtime.compiler import frames
from neuron_runtime.compiler.errors import CompileFailure, FailureKind
from neuron_runtime.compiler.options import CompileOptions, OptionsError


def main(arguments: Sequence[str]) -> int:
    lifeline, memory_limit = int(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 0
    inbox, outbox = _claim_streams()
    _die_with(lifeline)
    try:
        # The compiler is imported and its client started before the limit is set, so that the limit is for a
        # compile's own memory, and it is the first compile that is timed, not the import.
        serve = _warm_server()
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
            reply, payload = serve(*frame)
        except MemoryError:
            frames.send(outbox, _out_of_memory())
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


def _warm_server() -> Any:
    from neuron_runtime.compiler.compile import compile_neff
    from neuron_runtime.xla import Xla, XlaError

    xla = Xla()
    try:
        xla.start()
    except XlaError as error:
        raise CompileFailure(error.message, kind=FailureKind.ENVIRONMENT, hint=error.hint) from error

    def serve(request: Mapping[str, Any], ir: bytes) -> tuple[dict[str, Any], bytes]:
        try:
            options = CompileOptions.from_json(request["options"])
        except OptionsError as error:
            raise CompileFailure(error.message, kind=FailureKind.COMPILER_ERROR, hint=error.hint) from error
        done = compile_neff(ir, options, name=request["name"], native=request["native"], xla=xla)
        reply = {
            "manifest": done.manifest.to_json(),
            "seconds": done.seconds,
            "warnings": list(done.warnings),
        }
        return reply, done.neff

    return serve


def _limit_memory(count: int) -> None:
    """Allow `count` bytes of private writable memory beyond what this process has already.

    Not of address space: each thread reserves far more of that than it ever uses.
    """
    held = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (held + count, held + count))


def _refusal(failure: CompileFailure) -> dict[str, Any]:
    return {"failure": failure.kind.value, "message": failure.message, "hint": failure.hint}


def _out_of_memory() -> dict[str, Any]:
    return {"failure": FailureKind.OUT_OF_MEMORY.value, "message": "the compiler ran out of memory", "hint": None}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
