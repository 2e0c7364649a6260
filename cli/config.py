"""neuron-env config: which settings hold, and where from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .output import Mode, json_option, output, quiet_option

if TYPE_CHECKING:
    from neuron_runtime.config.layers import Layers, Origin


@click.group()
def config() -> None:
    """Look into the settings.

    \b
    Examples:
      neuron-env config show --origin
      neuron-env config files

    A setting comes from, in this order: an option of the command; the environment; the project's neuron-env.toml;
    the user's ~/.config/neuron-env/config.toml; /etc/neuron-env/config.toml; the default.
    """


@config.command()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--origin", is_flag=True, help="Say where each value is from.")
@click.option("--changed", is_flag=True, help="Leave out what has its default.")
@json_option
def show(names: tuple[str, ...], origin: bool, changed: bool) -> None:
    """Show the settings that hold here.

    \b
    Examples:
      neuron-env config show --origin
      neuron-env config show cache.url cache.namespace
      neuron-env config show --changed --json

    A NAME is a variable, or what a file calls it: `cache.url` is NEURON_ENV_CACHE_URL. Tokens are not shown.
    """
    from neuron_runtime.config.layers import load_layers
    from neuron_runtime.config.registry import file_key

    out, layers = output(), load_layers()
    chosen = [found for found in _chosen(layers, names) if not (changed and found.value is None)]
    if out.mode is Mode.JSON:
        out.json_document({"settings": [_document(found) for found in chosen], "files": _files(layers)})
        return
    columns = ("setting", "value", "from") if origin else ("setting", "value")
    rows = [(file_key(found.name), _shown(found), _source(found)) for found in chosen]
    out.table(columns, [row[: len(columns)] for row in rows])


@config.command()
@json_option
@quiet_option
def files() -> None:
    """List the configuration files that are read here, the strongest first.

    \b
    Examples:
      neuron-env config files
      neuron-env config files --json
    """
    from neuron_runtime.config.layers import load_layers

    out, found = output(), _files(load_layers())
    if out.mode is Mode.JSON:
        out.json_document({"files": found})
    elif found or out.mode is Mode.QUIET:
        rows = [(f["path"], f["layer"], f["ignored"] or f"{f['settings']} settings") for f in found]
        out.table(("file", "layer", "state"), rows)
    else:
        out.line("no configuration file is read here; the environment and the defaults hold")


def _chosen(layers: Layers, names: tuple[str, ...]) -> list[Origin]:
    from neuron_runtime.config.registry import DEFAULTS, file_key

    if not names:
        return layers.origins()
    by_name = {**{name: name for name in DEFAULTS}, **{file_key(name): name for name in DEFAULTS}}
    for name in names:
        if name not in by_name:
            import difflib

            near = difflib.get_close_matches(name, by_name, 1)
            raise click.UsageError(f"there is no setting `{name}`" + (f"; did you mean `{near[0]}`?" if near else ""))
    return [layers.origin(by_name[name]) for name in names]


def _shown(found: Origin) -> str:
    from neuron_runtime.config.registry import DEFAULTS
    from neuron_runtime.host.redaction import hide_secrets
    from neuron_runtime.host.variables import HIDDEN, is_secret

    if found.value is None:
        return f"({DEFAULTS.get(found.name, 'none')})"
    return HIDDEN if is_secret(found.name) else str(hide_secrets(found.value))


def _source(found: Origin) -> str:
    if found.path is not None:
        return f"{found.source} file: {found.path}"
    return f"environment: {found.name}" if found.source == "environment" else "default"


def _document(found: Origin) -> dict[str, Any]:
    from neuron_runtime.config.registry import DEFAULTS, file_key

    return {
        "name": found.name,
        "key": file_key(found.name),
        "value": None if found.value is None else _shown(found),
        "default": DEFAULTS.get(found.name),
        "origin": found.source,
        "path": None if found.path is None else str(found.path),
    }


def _files(layers: Layers) -> list[dict[str, Any]]:
    return [
        {"layer": file.layer, "path": str(file.path), "settings": len(file.values), "ignored": file.ignored}
        for file in layers.files
    ]
