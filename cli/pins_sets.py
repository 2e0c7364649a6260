"""neuron-env pins list, show, lock, install-command: the sets themselves."""

from __future__ import annotations

from pathlib import Path

import click

from neuron_runtime.errors import NeuronEnvError

from .output import Mode, json_option, output, quiet_option
from .pins_options import complete_sdk, sdk_option, torch_option


@click.command("list")
@json_option
@quiet_option
def list_command() -> None:
    """List the releases and the builds of torch-neuronx in them.

    \b
    Examples:
      neuron-env pins list
      neuron-env pins list --json | jq '.releases[].sdk'
    """
    from neuron_runtime.pins.catalog import load_catalog
    from neuron_runtime.pins.describe import release_document, release_rows

    out, releases = output(), load_catalog().releases[::-1]
    if out.mode is Mode.JSON:
        out.json_document({"releases": [release_document(release) for release in releases]})
    elif out.mode is Mode.QUIET:
        out.table(("sdk",), [(release.sdk,) for release in releases])
    else:
        columns = ("sdk", "date", "driver", "runtime", "neuronx-cc", "nki", "torch", "build", "Python", "chips")
        out.table(columns, [row for release in releases for row in release_rows(release)])


@click.command()
@click.argument("sdk", shell_complete=complete_sdk)
@json_option
def show(sdk: str) -> None:
    """Show all facts of a release, each with its source.

    \b
    Examples:
      neuron-env pins show 2.33.0
      neuron-env pins show 2.33.0 --json
    """
    from neuron_runtime.pins.catalog import load_catalog
    from neuron_runtime.pins.describe import fact_rows, release_document

    out, catalog = output(), load_catalog()
    release = catalog.release(sdk)
    rows = fact_rows(release)
    tags = sorted({row[2] for row in rows})
    if out.mode is Mode.JSON:
        sources = {tag: {"title": catalog.sources[tag].title, "date": catalog.sources[tag].date} for tag in tags}
        out.json_document({**release_document(release), "sources": sources})
        return
    out.table(("fact", "value", "source"), rows)
    for note in release.notes:
        out.line(f"note: {note}")
    out.line()
    for tag in tags:
        source = catalog.sources[tag]
        out.line(f"{tag}: {source.title} ({source.date}; {source.trust})")


@click.command()
@sdk_option
@torch_option
@click.option("--output-dir", type=click.Path(path_type=Path, file_okay=False), default=Path(), metavar="DIR")
@click.option("--force", is_flag=True, help="Overwrite files that say something else.")
@json_option
def lock(sdk: str | None, torch: str | None, output_dir: Path, force: bool) -> None:
    """Write constraints.txt, for pip, and neuron-env.lock, for `neuron-env pins check`.

    \b
    Examples:
      neuron-env pins lock --sdk 2.33.0 --torch 2.14
      pip install -c constraints.txt torch-neuronx nki neuronx-cc
    """
    from neuron_runtime.pins.catalog import load_catalog
    from neuron_runtime.pins.lock import CONSTRAINTS_NAME, LOCK_NAME, constraints_text, lock_text

    chosen = load_catalog().pin_set(sdk, torch)
    texts = {output_dir / CONSTRAINTS_NAME: constraints_text(chosen), output_dir / LOCK_NAME: lock_text(chosen)}
    for path, text in texts.items():
        if path.exists() and not force and path.read_text(encoding="utf-8", errors="replace") != text:
            raise NeuronEnvError(
                f"{path} is there already and says something else", hint="give `--force` to overwrite it"
            )
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise NeuronEnvError(f"cannot write {path}: {error.strerror}") from error
    out = output()
    if out.mode is Mode.JSON:
        out.json_document(
            {"sdk": chosen.release.sdk, "torch": chosen.build.torch, "files": [str(path) for path in texts]}
        )
    else:
        out.line(f"{chosen.name} ({chosen.build.kind}): {' and '.join(str(path) for path in texts)}")


@click.command("install-command")
@sdk_option
@torch_option
@click.option("--only", type=click.Choice(["system", "python"]), help="Only the system's or only Python's packages.")
@click.option("--container", is_flag=True, help="Leave out the driver: it is the host's.")
@json_option
def install_command(sdk: str | None, torch: str | None, only: str | None, container: bool) -> None:
    """Print the commands that install a set.

    \b
    Examples:
      neuron-env pins install-command --sdk 2.33.0 --torch 2.14
      neuron-env pins install-command --only python
    """
    from neuron_runtime.pins.catalog import load_catalog
    from neuron_runtime.pins.commands import install_commands

    catalog = load_catalog()
    chosen = catalog.pin_set(sdk, torch)
    commands = install_commands(
        catalog.repositories, chosen, system=only != "python", python=only != "system", container=container
    )
    out = output()
    if out.mode is Mode.JSON:
        out.json_document({"sdk": chosen.release.sdk, "torch": chosen.build.torch, "commands": commands})
        return
    out.note(f"# {chosen.name} ({chosen.build.kind})")
    for command in commands:
        out.line(command)
