"""The reference of all commands, made from the commands: `python -m cli.reference > docs/cli.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from cli.main import root

_WIDTH = 100
_HEADER = """# Commands

Made from the commands themselves by `python -m cli.reference > docs/cli.md`; a test checks that it is current.

Reading commands take `--json` and then print one document whose first key is `schema_version`; its keys stay, while
text for people may change. Exit codes: 0 fine, 1 a problem was found or the command failed, 2 wrong usage, 130
interrupted. `neuron-env completion SHELL` prints what bash, zsh, fish or PowerShell needs to complete commands, options
and versions. Options that are not given come from the [settings](settings.md).
"""


def reference() -> str:
    """The page as Markdown."""
    return "\n".join([_HEADER, *_commands(root, _context(root, "neuron-env", None))])


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    """Help as everybody sees it, whatever terminal it is made in."""
    return click.Context(
        command,
        parent=parent,
        info_name=name,
        terminal_width=_WIDTH,
        max_content_width=_WIDTH,
        help_option_names=["-h", "--help"],
    )


def _commands(command: click.Command, context: click.Context) -> Iterator[str]:
    depth = min(4, context.command_path.count(" ") + 2)
    yield f"{'#' * depth} {context.command_path}\n\n```text\n{_plain(command.get_help(context))}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None, name
            if not inner.hidden:
                yield from _commands(inner, _context(inner, name, context))


def _plain(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines())


if __name__ == "__main__":
    sys.stdout.write(reference())
