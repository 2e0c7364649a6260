"""What a compiler that ended without a NEFF died of. The cache remembers only what is the program's own fault."""

from __future__ import annotations

import re
import signal

from neuron_runtime.compiler.errors import CompileFailure, FailureKind

# The host's memory. A program too large for the device is `NCC_EOOM…`, an error like any other.
_MEMORY = re.compile(
    r"\[F137\]|forcibly killed|std::bad_alloc|\bMemoryError\b|Cannot allocate memory|[Oo]ut of host memory"
)
_HOST = re.compile(
    r"No space left on device|Disk quota exceeded|File too large|Read-only file system|Permission denied|"
    r"Too many open files|Input/output error|Stale file handle|error while loading shared libraries|"
    r"ModuleNotFoundError|ImportError|Resource temporarily unavailable|Text file busy"
)
# The compiler's own names for what is wrong with a program. `NCC_I…` is an internal error: one of many compiles on a
# host that is too small dies of those as well. Of the simulator's, 002, 004 and 005 are about the host.
_PROGRAM = re.compile(r"\bNCC_E(?!SIM00[245])\w+")
# sysexits.h: the command line, missing files, I/O, and "try again"; and the shell's own.
_STATUS = {2: "the command line", 64: "the command line", 66: "its input", 73: "its output", 74: "the disk"}
_NOT_RUN = (126, 127)
_TIMED_OUT = 124  # by timeout(1)


def judge(exit_code: int, stderr: str) -> CompileFailure:
    """The failure of a compiler that ended with `exit_code` (negative: a signal) and had said `stderr` last."""
    if exit_code < 0 or exit_code > 128:
        number = -exit_code if exit_code < 0 else exit_code - 128
        kind, what = FailureKind.KILLED, f"ended by {_signal_name(number)}"
    elif exit_code == _TIMED_OUT:
        kind, what = FailureKind.TIMEOUT, "took too long"
    elif _MEMORY.search(stderr):
        kind, what = FailureKind.OUT_OF_MEMORY, "ran out of memory"
    elif exit_code in _NOT_RUN or exit_code in _STATUS or _HOST.search(stderr):
        kind, what = FailureKind.ENVIRONMENT, f"ended with status {exit_code}"
    elif _PROGRAM.search(stderr):
        kind, what = FailureKind.COMPILER_ERROR, f"ended with status {exit_code}"
    else:
        kind, what = FailureKind.ENVIRONMENT, f"ended with status {exit_code} and named no error of the program"
    return CompileFailure(f"the compiler {what}", kind=kind, stderr=stderr, exit_code=exit_code)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
