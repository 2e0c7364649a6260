"""A click group that knows its commands by name and imports one only to run it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import click

from neuron_runtime.errors import NeuronEnvError


class LazyCommand(NamedTuple):
    """Where a command lives, as `module:attribute`, and its line in the help."""

    target: str
    short_help: str


class LazyGroup(click.Group):
    """Listing and completing commands imports none of them; a command that cannot be imported fails alone."""

    def __init__(self, *args: Any, lazy: Mapping[str, LazyCommand], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = dict(lazy)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self.lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        return _load(cmd_name, self.lazy[cmd_name].target)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and name not in self.lazy and name not in self.commands:
            import difflib

            near = difflib.get_close_matches(name, self.list_commands(ctx), 1)
            raise click.UsageError(
                f"there is no command `{name}`" + (f"; did you mean `{near[0]}`?" if near else ""), ctx
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, self._short_help(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [CompletionItem(name, help=self._short_help(ctx, name)) for name in names] + options

    def _short_help(self, ctx: click.Context, name: str) -> str:
        if name in self.lazy:
            return self.lazy[name].short_help
        command = super().get_command(ctx, name)
        return command.get_short_help_str() if command else ""


def _load(name: str, target: str) -> click.Command:
    module_name, _, attribute = target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name == module_name:
            raise NeuronEnvError(
                f"`neuron-env {name}` is not part of this installation", hint="install a newer `neuron-env`"
            ) from error
        raise NeuronEnvError(
            f"`neuron-env {name}` needs the package `{error.name}`, which is not installed",
            hint="install everything for the simulated device with `pip install 'neuron-env[sim]'`",
        ) from error
    command = getattr(module, attribute)
    assert isinstance(command, click.Command), target
    return command
