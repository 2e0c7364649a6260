"""neuron-env completion: what a shell has to be told to complete our commands."""

from __future__ import annotations

import click

from neuron_runtime.errors import NeuronEnvError

from .output import output


@click.command("completion")
@click.argument("shell", metavar="bash|zsh|fish|powershell")
def completion(shell: str) -> None:
    """Print the script that completes commands, options and versions in a shell.

    \b
    Examples:
      neuron-env completion bash > ~/.local/share/bash-completion/completions/neuron-env
      source <(neuron-env completion zsh)
      neuron-env completion fish > ~/.config/fish/completions/neuron-env.fish
    """
    from click.shell_completion import get_completion_class

    from .main import root

    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(
            f"there is no completion for the shell `{shell}`; there is bash, fish, powershell and zsh"
        )
    try:
        script = found(root, {}, "neuron-env", "_NEURON_ENV_COMPLETE").source()
    except RuntimeError as error:
        raise NeuronEnvError(f"no completion for this {shell}: {error}") from error
    for line in script.strip().splitlines():
        output().line(line)
