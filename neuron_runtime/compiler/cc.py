"""`neuronx-cc-sim`: the simulator's compiler, with the command line of neuronx-cc.

Exit codes: 0 a NEFF was written, 2 the command line is wrong, 66 the input cannot be read, 70 the compile failed,
73 the output cannot be written, 130 and 143 ended by Ctrl-C and SIGTERM.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from neuron_runtime.compiler.errors import CompileFailure, FailureKind
from neuron_runtime.compiler.options import TARGETS, Command, OptionsError
from neuron_runtime.compiler.version import COMPILER_NAME, COMPILER_VERSION

_PROGRAM = COMPILER_NAME
_DEFAULT_OUTPUT = "file.neff"
_USAGE, _NO_INPUT, _FAILED, _NO_OUTPUT = 2, 66, 70, 73

_HELP = f"""\
usage: {_PROGRAM} compile FILE --target TARGET [options]
       {_PROGRAM} --version | --help

Compiles StableHLO (text, MLIR bytecode, portable artifact) or HLO (protobuf, text) to a NEFF for the simulated
Neuron device. This is neuron-env's simulator, not the compiler of AWS Neuron: what it makes runs on no Neuron
hardware.

  FILE                        the program; `-` reads standard input
  --framework XLA             the only framework
  --target TARGET             {", ".join(TARGETS)} (default: trn2)
  --lnc N                     physical cores a logical NeuronCore has, 1 or 2 (default: by target)
  -O1 | -O2 | -O3             optimisation level (default: -O2)
  --model-type TYPE           as neuronx-cc
  --auto-cast none|matmult|all  only `none` is simulated; the others warn
  --output FILE               the NEFF (default: {_DEFAULT_OUTPUT})
  --verbose LEVEL             `info` or `debug` reports the compile on standard error

Other options are taken and ignored with a warning.

exit codes: 0 done, 2 wrong command line, 66 no input, 70 compile failed, 73 no output
"""

# Codes in the form of neuronx-cc's; those of the simulator all contain SIM.
_CODES = {
    FailureKind.COMPILER_ERROR: "[ERROR] [NCC_ESIM001]",
    FailureKind.OUT_OF_MEMORY: "[ERROR] [NCC_ESIM002]",
    FailureKind.KILLED: "[INTERNAL_ERROR] [NCC_ISIM003]",
    FailureKind.TIMEOUT: "[ERROR] [NCC_ESIM004]",
    FailureKind.ENVIRONMENT: "[ERROR] [NCC_ESIM005]",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        return _run(words)
    except KeyboardInterrupt:
        _say("[ERROR] interrupted")
        return 128 + signal.SIGINT
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(words: list[str]) -> int:
    if any(word in ("-h", "--help") for word in words):
        sys.stdout.write(_HELP)
        return 0
    if words[:1] == ["--version"]:
        sys.stdout.write(f"{_PROGRAM} version {COMPILER_VERSION} (simulated; not the compiler of AWS Neuron)\n")
        return 0
    if words[:1] != ["compile"]:
        given = f"unknown command `{words[0]}`" if words else "no command given"
        return _usage(given, f"type: {_PROGRAM} compile FILE --target trn2")
    try:
        command = Command.parse(words[1:])
    except OptionsError as error:
        return _usage(error.message, error.hint)
    if len(command.inputs) != 1:
        given = f"one input file is needed, not {len(command.inputs)}: {' '.join(command.inputs)}".rstrip(": ")
        return _usage(given, f"put the file right behind the command: {_PROGRAM} compile FILE --target trn2")
    try:
        program = _read(command.inputs[0])
    except OSError as error:
        return _fail(_NO_INPUT, f"[ERROR] the input `{command.inputs[0]}` cannot be read: {_why(error)}")
    return _compile(command, program)


def _compile(command: Command, program: bytes) -> int:
    from neuron_runtime.compiler.output import write_output
    from neuron_runtime.compiler.warm import WarmCompiler

    output = Path(command.settings.get("--output", _DEFAULT_OUTPUT))
    if output.is_dir() or not output.parent.is_dir():
        why = "is a directory" if output.is_dir() else f"needs the directory `{output.parent}`, which is not there"
        return _fail(_NO_OUTPUT, f"[ERROR] the output `{output}` {why}")
    for warning in command.options.warnings:
        _say(f"[WARNING] [NCC_WSIM001] {warning}")
    try:
        with WarmCompiler() as compiler:
            done = compiler.compile(program, command.options, name=_name(command.inputs[0]))
    except CompileFailure as failure:
        text = f"{_CODES[failure.kind]} {failure.message}"
        return _fail(_FAILED, text, failure.hint, failure.stderr)
    try:
        write_output(output, done.neff)
    except OSError as error:
        return _fail(_NO_OUTPUT, f"[ERROR] the output `{output}` cannot be written: {_why(error)}")
    if command.settings.get("--verbose", "").lower() in ("info", "debug", "20", "10"):
        _say(f"[INFO] {output}: {len(done.neff)} bytes in {done.seconds:.3f} s, {' '.join(command.options.flags)}")
    return 0


def _read(path: str) -> bytes:
    return sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()


def _name(path: str) -> str:
    """What the NEFF is called: the input's name up to its first dot, as far as a NEFF takes it."""
    stem = Path(path).name.partition(".")[0] if path != "-" else ""
    kept = "".join(c for c in stem if c.isprintable())
    return kept.encode()[:200].decode(errors="ignore") or "model"


def _usage(message: str, hint: str | None) -> int:
    return _fail(_USAGE, f"[ERROR] {message}", hint)


def _fail(code: int, text: str, hint: str | None = None, detail: str = "") -> int:
    _say(text)
    if detail:
        _say(detail)
    if hint:
        _say(f"\nhint: {hint}")
    return code


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


def _why(error: OSError) -> str:
    return error.strerror or str(error)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
