"""neuron-env doctor: what is wrong with this host, and what to type."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .output import Mode, json_option, output
from .units import count_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuron_runtime.doctor.check import Check, Result

_LOOKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "problem": ("✗", "red"), "skipped": ("-", None)}


@click.command("doctor")
@click.argument("checks", nargs=-1, metavar="[CHECK]...")
@click.option("--list-checks", is_flag=True, help="List the checks.")
@click.option("--strict", is_flag=True, help="Exit 1 for warnings, too.")
@click.option("--fix", is_flag=True, help="Mend what is safe to mend beside running jobs.")
@click.option("--python", metavar="PATH", help="Look into this interpreter's environment instead of this one.")
@json_option
@click.pass_context
def doctor(
    context: click.Context, checks: tuple[str, ...], list_checks: bool, strict: bool, fix: bool, python: str | None
) -> None:
    """Check what can be wrong with a Neuron host; each finding with what was expected and what to type.

    \b
    Examples:
      neuron-env doctor
      neuron-env doctor driver lnc shared-cache
      neuron-env doctor --json | jq '.checks[] | select(.status == "problem")'

    A check that crashes or hangs is a problem of its own; the others go on. The exit code is 1 if there are problems.
    """
    from neuron_runtime.doctor.check import Status, Subject, run_checks
    from neuron_runtime.host.report import collect_host

    from .collect import open_host

    out, chosen = output(), _chosen(checks)
    if list_checks:
        if out.mode is Mode.JSON:
            out.json_document({"checks": [{"id": check.id, "about": check.about} for check in chosen]})
        else:
            out.table(("check", "about"), [(check.id, check.about) for check in chosen])
        return
    host = open_host(None)
    subject = Subject(host, collect_host(host, python=python, proof=False))
    results = run_checks(chosen, subject)
    mended = {result.id: result.mend() for result in results if fix and result.mend is not None}
    if mended:
        results = run_checks(chosen, subject)
    if out.mode is Mode.JSON:
        out.json_document({"checks": [{**it.to_json(), "mended": mended.get(it.id)} for it in results]})
    else:
        _tell(results, mended)
    bad = {Status.PROBLEM, Status.WARNING} if strict else {Status.PROBLEM}
    context.exit(1 if any(result.status in bad for result in results) else 0)


def _chosen(names: Sequence[str]) -> list[Check]:
    from cache_server.doctor import checks as caches
    from neuron_runtime.doctor import hardware, places, software

    known = [*hardware.CHECKS, *software.CHECKS, *places.CHECKS, *caches.CHECKS]
    unknown = sorted(set(names) - {check.id for check in known})
    if unknown:
        raise click.UsageError(f"no such check: {', '.join(unknown)}; `neuron-env doctor --list-checks` lists them")
    return [check for check in known if not names or check.id in names]


def _tell(results: Sequence[Result], mended: dict[str, str]) -> None:
    out = output()
    for result in results:
        mark, color = _LOOKS[result.status.value]
        out.line(f"{mark} {result.id:<14} {result.found}", **({"fg": color} if color else {}))
        if result.expected:
            out.line(f"    expected  {result.expected}")
        if result.remedy:
            out.line(f"    type      {result.remedy}")
        if result.id in mended:
            out.line(f"    {mended[result.id]}")
    counts = [sum(it.status.value == status for it in results) for status in ("problem", "warning", "skipped")]
    said = ", ".join([count_text(counts[0], "problem"), count_text(counts[1], "warning"), f"{counts[2]} skipped"])
    out.line()
    out.line(f"{len(results)} checks: {said}", bold=True)
