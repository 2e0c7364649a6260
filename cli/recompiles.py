"""neuron-env recompiles: a script run as it is, and what torch.compile made of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from neuron_runtime.errors import NeuronEnvError

from .output import Mode, json_option, output


@click.command("recompiles", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="SCRIPT [ARGS]...")
@click.option("--html", "page", type=click.Path(dir_okay=False, path_type=Path), help="Also write a page there.")
@json_option
@click.pass_context
def recompiles(context: click.Context, command: tuple[str, ...], page: Path | None) -> None:
    """Run a Python script and report every graph, every recompile and why, every graph break and every fallback.

    The script runs unchanged, with the exit status that it has. All processes that it starts and that import torch
    are recorded. With `--json`, what it prints goes to stderr. After `--`, anything that Python takes may stand in
    place of the script, such as `-m MODULE`.

    \b
    Examples:
      neuron-env recompiles train.py --steps 3
      neuron-env recompiles --html report.html train.py
      neuron-env recompiles --json -- -m package.train
    """
    from torch_neuronx.recompiles import page as page_of
    from torch_neuronx.recompiles import read_events, report, summary, tables

    out = output()
    if not command[0].startswith("-") and not Path(command[0]).is_file():
        raise NeuronEnvError(
            f"there is no file `{command[0]}`", hint=f"name a Python script; paths start at {Path.cwd()}"
        )
    with tempfile.TemporaryDirectory(prefix="neuron-env-recompiles-") as directory:
        status = _run(
            [sys.executable, *command],
            {**os.environ, "NEURON_ENV_RECOMPILES_DIR": directory},
            stdout=2 if out.mode is Mode.JSON else None,
        )
        events = read_events(Path(directory))
    document = report(command, status, events)
    if page is not None:
        try:
            page.write_text(page_of(document))
        except OSError as error:
            raise NeuronEnvError(f"cannot write {page}: {error.strerror}") from error
    if not events:
        out.warning("nothing was recorded", hint="the script has to import torch with torch_neuronx installed")
    if out.mode is Mode.JSON:
        out.json_document(document)
    else:
        for title, columns, rows in tables(document):
            out.line()
            out.line(title, bold=True)
            out.table(columns, rows)
        out.line()
        out.line(summary(document))
    context.exit(status)


def _run(command: Sequence[str], environ: Mapping[str, str], stdout: int | None) -> int:
    """Its exit status, 128 more than the signal that ended it. A signal to this process is the script's to handle."""
    process = subprocess.Popen(command, env=environ, stdout=stdout)
    # The terminal sends Ctrl-C to both; the report is worth most when the script was stopped.
    interrupt = signal.signal(signal.SIGINT, lambda *_: None)
    terminate = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        code = process.wait()
    finally:
        signal.signal(signal.SIGINT, interrupt)
        signal.signal(signal.SIGTERM, terminate)
    return code if code >= 0 else 128 - code
