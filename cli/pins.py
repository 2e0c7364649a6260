"""neuron-env pins: the group."""

from __future__ import annotations

import click

from .lazy import LazyCommand, LazyGroup

COMMANDS = {
    "list": LazyCommand("cli.pins_sets:list_command", "List the releases and the builds of torch-neuronx in them."),
    "show": LazyCommand("cli.pins_sets:show", "Show all facts of a release, each with its source."),
    "lock": LazyCommand("cli.pins_sets:lock", "Write a constraints file and a lock."),
    "install-command": LazyCommand("cli.pins_sets:install_command", "Print the commands that install a set."),
    "check": LazyCommand("cli.pins_check:check", "Compare this host, an image or a list of packages with a set."),
    "upgrade": LazyCommand("cli.pins_check:upgrade", "Show what changes between two sets, and the commands."),
}


@click.group(cls=LazyGroup, lazy=COMMANDS)
def pins() -> None:
    """Keep the versions of driver, runtime, compiler, torch-neuronx and torch together.

    \b
    Examples:
      neuron-env pins list
      neuron-env pins lock --sdk 2.33.0 --torch 2.14
      neuron-env pins check
      neuron-env pins install-command --sdk 2.33.0

    The facts are data files with their sources; `neuron-env pins show` names them. What is not known is left out.
    """
