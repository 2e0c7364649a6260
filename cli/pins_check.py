"""neuron-env pins check, upgrade: what there is beside a set."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from neuron_runtime.errors import NeuronEnvError

from .output import Mode, json_option, output
from .pins_options import complete_sdk, complete_torch, torch_option
from .units import count_text

if TYPE_CHECKING:
    from neuron_runtime.pins.check import Check
    from neuron_runtime.pins.observed import Observed


@click.command()
@click.option("--sdk", metavar="X.Y.Z", shell_complete=complete_sdk, help="Compare with a set of this release.")
@click.option("--torch", metavar="X.Y", shell_complete=complete_torch, help="Compare with a set of this torch.")
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


@click.command()
@click.option(
    "--from-sdk", metavar="X.Y.Z", shell_complete=complete_sdk, help="The release to come from.  [default: this host's]"
)
@click.option("--from-torch", metavar="X.Y", shell_complete=complete_torch, help="The torch to come from.")
@click.option(
    "--sdk", metavar="X.Y.Z", shell_complete=complete_sdk, help="The release to go to.  [default: the newest]"
)
@torch_option
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
