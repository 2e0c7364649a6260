"""neuron-env: the root command."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from neuron_runtime.errors import NeuronEnvError

from .errors import reader_left, report
from .lazy import LazyCommand, LazyGroup
from .output import Output, output

COMMANDS = {
    "cache": LazyCommand("cli.cache:cache", "Look into the NEFF cache and look after it."),
    "collect": LazyCommand("cli.collect:collect", "Collect what matters about this host, with a verdict."),
    "compile": LazyCommand("cli.compile:compile_command", "Compile a PyTorch module into the cache."),
    "completion": LazyCommand("cli.completion:completion", "Print the script for a shell's completion."),
    "config": LazyCommand("cli.config:config", "Show which settings hold, and where from."),
    "doctor": LazyCommand("cli.doctor:doctor", "Find what is wrong with this host, and what to type."),
    "launcher": LazyCommand("cli.launcher:launcher", "Put the cache in front of the real neuronx-cc."),
    "neff": LazyCommand("cli.neff:neff", "Look into NEFF files, unpack and verify them."),
    "pins": LazyCommand("cli.pins:pins", "Keep the versions of the Neuron SDK together."),
    "recompiles": LazyCommand("cli.recompiles:recompiles", "Run a script and say what was compiled and why."),
    "preflight": LazyCommand("cli.preflight:preflight", "Find in sources what a Neuron device does not do."),
    "run": LazyCommand("cli.run:run_command", "Run a PyTorch module on the simulated device."),
    "runtime": LazyCommand("cli.runtime:runtime", "Start, stop and watch the simulated runtime."),
}


class RootGroup(LazyGroup):
    """The root: exceptions of any command become messages and exit codes here."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        out = extra.setdefault("obj", Output())
        try:
            result = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the last handler there is
            sys.exit(report(error, out))
        # click returns the code of `ctx.exit(code)`; commands themselves return None.
        sys.exit(result if isinstance(result, int) else 0)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            # click takes every broken pipe for a reader of ours that has left, and ends in silence. A socket that
            # breaks under a command is a failure to report.
            if reader_left(sys.stdout) or reader_left(sys.stderr):
                raise
            raise NeuronEnvError("the other side closed the connection", hint="try again") from error


def _print_version(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from .version import version_lines

        for text in version_lines():
            output().line(text)
        context.exit()


@click.group(
    cls=RootGroup,
    lazy=COMMANDS,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "NEURON_ENV",
        "max_content_width": 100,
    },
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    help="When to print in colour.  [default: auto]",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and the commit.",
)
def root(debug: bool, color: str) -> None:
    """Run, cache and diagnose AWS Neuron workloads.

    \b
    Examples:
      neuron-env compile model.py:factory
      neuron-env run model.py:factory
      neuron-env runtime status
      neuron-env neff info module.neff

    Without Neuron hardware, programs run on a simulated device on the CPU. Whatever is simulated says so: by the
    word, or by a version that ends in `+sim`.
    """
    out = output()
    out.debug = _from_files("debug", str(int(debug))) not in ("", "0")
    out.color = _from_files("color", color)


def _from_files(option: str, value: str) -> str:
    """The option's value, or what a configuration file says where neither an option nor the environment does."""
    from click.core import ParameterSource

    from neuron_runtime.config.layers import load_layers

    if click.get_current_context().get_parameter_source(option) is not ParameterSource.DEFAULT:
        return value
    try:
        found = load_layers().origin(f"NEURON_ENV_{option.upper()}").value
    except NeuronEnvError:
        # A file that is wrong is reported by the command that needs it.
        return value
    if option == "color" and found not in (None, "auto", "always", "never"):
        raise NeuronEnvError(f"the setting `color` is {found!r}", hint="set it to auto, always or never")
    return value if found is None else found


def main() -> NoReturn:
    root.main(prog_name="neuron-env")
    raise AssertionError("click always exits")


if __name__ == "__main__":
    main()
