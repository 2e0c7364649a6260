"""From an exception to what its reader sees and the exit code: 1 failed, 2 usage, 130 interrupted."""

from __future__ import annotations

import os
import sys
from typing import IO

import click

from neuron_runtime.errors import NeuronEnvError

from .output import Output

FAILED = 1
USAGE = 2
INTERRUPTED = 130

# The parts that the base installation leaves out, and how to get them.
_INSTALL = {
    "torch_neuronx": "install torch-neuronx-sim: type `pip install ./torch_plugin` in a clone of neuron-env",
    "torch": "install it, for instance with `pip install torch==2.13.0`",
    "starlette": "install the service with `pip install 'neuron-env[server]'`",
    "uvicorn": "install the service with `pip install 'neuron-env[server]'`",
    "uvloop": "install the service with `pip install 'neuron-env[server]'`",
    "prometheus_client": "install the service with `pip install 'neuron-env[server]'`",
    "numpy": "install everything for the simulated device with `pip install 'neuron-env[sim]'`",
    "jaxlib": "install everything for the simulated device with `pip install 'neuron-env[sim]'`",
}


def report(error: BaseException, out: Output) -> int:
    """Print what there is to say about `error` on stderr, and return the exit code."""
    if out.debug and isinstance(error, Exception) and not isinstance(error, click.ClickException | click.Abort):
        import traceback

        out.trace("".join(traceback.format_exception(error)))
    match error:
        case click.exceptions.NoArgsIsHelpError():
            out.trace(error.format_message())
            return USAGE
        case click.UsageError():
            if error.ctx:
                out.trace(error.ctx.get_usage())
            command = f"{error.ctx.command_path} --help" if error.ctx else "neuron-env --help"
            out.error(_sentence(error.format_message()), f"see `{command}`")
            return USAGE
        case click.ClickException():
            out.error(_sentence(error.format_message()))
            return error.exit_code
        case click.Abort() | KeyboardInterrupt():
            out.error("interrupted")
            return INTERRUPTED
        case NeuronEnvError():
            out.error(str(error), error.hint)
            return FAILED
        case ModuleNotFoundError() if error.name in _INSTALL:
            out.error(f"this command needs the package `{error.name}`, which is not installed", _INSTALL[error.name])
            return FAILED
        case OSError():
            # Not least a stdout that cannot be written: what waits in its buffer is lost.
            _drop_stdout()
            out.error(": ".join(str(part) for part in (error.strerror or error, error.filename) if part))
            return FAILED
        case _:
            what = f"{type(error).__name__}: {error}".rstrip(": ").partition("\n")[0]
            hint = None if out.debug else "run again as `neuron-env --debug …` for the traceback, and report it"
            out.error(f"unexpected failure: {what}", hint)
            return FAILED


def reader_left(stream: IO[str]) -> bool:
    """Whether `stream` is a pipe that nobody reads any more."""
    import select

    try:
        poll = select.poll()
        poll.register(stream, 0)
        return any(event & select.POLLERR for _, event in poll.poll(0))
    except (OSError, ValueError):
        return False


def _drop_stdout() -> None:
    """If stdout takes nothing any more, let the interpreter's last flush go nowhere instead of complaining."""
    try:
        sys.stdout.flush()
        return
    except OSError:
        pass
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _sentence(text: str) -> str:
    # A message of one sentence ends without a full stop; click's own end with one.
    return text[:-1] if text.endswith(".") and not text.endswith("..") else text
