"""neuron-env pins: which versions belong together, what a host has of them, how to get there."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from neuron_runtime.errors import NeuronEnvError

from .output import Mode, json_option, output, quiet_option
from .units import count_text

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from neuron_runtime.pins.check import Check
    from neuron_runtime.pins.observed import Observed


def _complete_sdk(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from neuron_runtime.pins.catalog import load_catalog

    return [CompletionItem(r.sdk) for r in load_catalog().releases if r.sdk.startswith(incomplete)]


def _complete_torch(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    from neuron_runtime.pins.catalog import load_catalog
    from neuron_runtime.pins.versions import series

    found = dict.fromkeys(series(pins.build.torch) for pins in load_catalog().pin_sets())
    return [CompletionItem(torch) for torch in found if torch.startswith(incomplete)]


_sdk = click.option("--sdk", metavar="X.Y.Z", shell_complete=_complete_sdk, help="The release.  [default: the newest]")
_torch = click.option(
    "--torch", metavar="X.Y", shell_complete=_complete_torch, help="The torch.  [default: the newest]"
)


@click.group()
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


@pins.command("list")
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


@pins.command()
@click.argument("sdk", shell_complete=_complete_sdk)
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


@pins.command()
@_sdk
@_torch
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


@pins.command()
@_sdk
@_torch
@click.option("--lock", "lock_file", type=click.Path(path_type=Path), metavar="FILE", help="Compare with this lock.")
@click.option(
    "--freeze", metavar="FILE", help="Compare the output of `pip freeze`, `-` for stdin, instead of this host."
)
@click.option("--image", metavar="DIR", help="Compare an unpacked image, running nothing of it.")
@click.option("--python", metavar="PATH", help="Look into this interpreter's environment instead of this one.")
@json_option
@click.pass_context
def check(
    context: click.Context,
    sdk: str | None,
    torch: str | None,
    lock_file: Path | None,
    freeze: str | None,
    image: str | None,
    python: str | None,
) -> None:
    """Compare this host, an image or a list of packages with a set, and explain each difference.

    \b
    Examples:
      neuron-env pins check
      neuron-env pins check --sdk 2.33.0 --torch 2.14
      python -m pip freeze | neuron-env pins check --freeze -
      neuron-env pins check --image ./rootfs --lock neuron-env.lock

    Without `--sdk`, `--torch` or `--lock` the set is that of ./neuron-env.lock, else the one that comes nearest. The
    exit code is 1 if there is a problem; warnings and notes are none.
    """
    from neuron_runtime.pins.catalog import load_catalog
    from neuron_runtime.pins.check import check_pins, nearest_set
    from neuron_runtime.pins.lock import LOCK_NAME, read_lock

    if lock_file and (sdk or torch):
        raise click.UsageError("`--lock` already names a set: leave out `--sdk` and `--torch`", context)
    if freeze and (image or python):
        raise click.UsageError("`--freeze` excludes `--image` and `--python`", context)
    catalog = load_catalog()
    observed = _observe(freeze, image, python)
    if sdk or torch:
        chosen, reason = catalog.pin_set(sdk, torch), "as asked for"
    elif lock_file or Path(LOCK_NAME).exists():
        path = lock_file or Path(LOCK_NAME)
        chosen, reason = read_lock(path, catalog), f"named by {path}"
    else:
        chosen, reason = nearest_set(observed, catalog)
    result = check_pins(observed, chosen, reason, catalog)
    if output().mode is Mode.JSON:
        output().json_document(result.to_json())
    else:
        _print_check(result)
    if not result.ok:
        context.exit(1)


@pins.command("install-command")
@_sdk
@_torch
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


@pins.command()
@click.option(
    "--from-sdk", metavar="X.Y.Z", shell_complete=_complete_sdk, help="[default: what this host comes nearest]"
)
@click.option("--from-torch", metavar="X.Y", shell_complete=_complete_torch)
@click.option(
    "--sdk", metavar="X.Y.Z", shell_complete=_complete_sdk, help="The release to go to.  [default: the newest]"
)
@_torch
@json_option
def upgrade(from_sdk: str | None, from_torch: str | None, sdk: str | None, torch: str | None) -> None:
    """Show what changes between two sets, what that means, and the commands.

    \b
    Examples:
      neuron-env pins upgrade
      neuron-env pins upgrade --from-sdk 2.31.1 --sdk 2.33.0 --torch 2.14
    """
    from neuron_runtime.pins.catalog import load_catalog
    from neuron_runtime.pins.check import nearest_set
    from neuron_runtime.pins.upgrade import plan_upgrade

    catalog, manager = load_catalog(), "apt"
    after = catalog.pin_set(sdk, torch)
    if from_sdk or from_torch:
        before = catalog.pin_set(from_sdk, from_torch)
    else:
        observed = _observe(None, None, None)
        if observed.build not in ("native", "xla"):
            raise NeuronEnvError("this host has no torch-neuronx to start from", hint="give `--from-sdk`")
        before, manager = nearest_set(observed, catalog)[0], observed.manager
    plan = plan_upgrade(before, after, catalog, manager)
    out = output()
    if out.mode is Mode.JSON:
        out.json_document(plan.to_json())
        return
    out.line(f"from {before.name} ({before.build.kind}) to {after.name} ({after.build.kind})", bold=True)
    if not plan.changes:
        out.line("nothing changes")
        return
    out.table(
        ("component", "from", "to", ""),
        [(c.component, c.before or "-", c.after or "-", c.direction) for c in plan.changes],
    )
    for title, lines in (("what follows", plan.consequences), ("commands", plan.commands)):
        out.line()
        out.line(title, bold=True)
        for line in lines:
            out.line(f"  {line}")


def _observe(freeze: str | None, image: str | None, python: str | None) -> Observed:
    from neuron_runtime.pins.freeze import read_freeze
    from neuron_runtime.pins.observed import observe_report

    if freeze is not None:
        return read_freeze(_read(freeze), "stdin" if freeze == "-" else freeze)
    from neuron_runtime.host.report import collect_host

    from .collect import open_host

    report = collect_host(open_host(image), python=python, proof=False)
    if python and report.sections["python"] is None:
        raise NeuronEnvError(report.not_found["python"], hint="give the path of an interpreter")
    return observe_report(report, f"the image {image}" if image else "this host", image=image is not None)


def _read(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NeuronEnvError(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _print_check(result: Check) -> None:
    out = output()
    out.line(f"{result.observed.source} beside {result.pins.name} ({result.pins.build.kind}), {result.reason}")
    for name, pin, found, agrees in result.rows:
        out.check(agrees, f"{name} {found or 'is missing'}" + ("" if agrees else f", pinned {pin}"))
    for finding in result.findings:
        colors = {"problem": "red", "warning": "yellow", "note": "cyan"}
        out.line()
        out.line(
            f"{finding.severity}: {finding.component} {finding.found or 'is missing'}", fg=colors[finding.severity]
        )
        out.line(f"  expected  {finding.expected}")
        out.line(f"  so        {finding.consequence}")
        if finding.remedy:
            out.line(f"  type      {finding.remedy}")
    out.line()
    counts = Counter(str(finding.severity) for finding in result.findings)
    said = ", ".join(count_text(counts[kind], kind) for kind in ("problem", "warning", "note"))
    out.line(f"{'fits' if result.ok else 'does not fit'} {result.pins.name}: {said}", bold=True)
