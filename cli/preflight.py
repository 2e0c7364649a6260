"""neuron-env preflight: what in a program does not suit a Neuron device, told from its source."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from neuron_runtime.errors import NeuronEnvError

from .output import Mode, json_option, output

if TYPE_CHECKING:
    from neuron_runtime.preflight.examine import Examined
    from neuron_runtime.preflight.finding import Finding

_COLORS = {"error": "red", "warning": "yellow", "note": "blue"}


@click.command("preflight")
@click.argument("targets", nargs=-1, metavar="PATH...|MODULE:FACTORY")
@click.option("--fix", is_flag=True, help="Print the mechanical changes as a unified diff.")
@click.option("--write", "write_files", is_flag=True, help="With --fix: make them in the files.")
@click.option("--run", "run_it", is_flag=True, help="Run the one program that is named on the device, too.")
@click.option("--run-args", default="", metavar="TEXT", help="The program's own arguments, as in a shell.")
@click.option(
    "--run-timeout", type=click.FloatRange(min=0, min_open=True), default=600.0, show_default=True, metavar="S",
    help="End the run after S seconds.",
)  # fmt: skip
@click.option("--ignore", "ignored", multiple=True, metavar="RULE", help="Leave a rule out; may be repeated.")
@click.option("--strict", is_flag=True, help="Exit 1 for warnings, too.")
@click.option("--sarif", is_flag=True, help="Print SARIF 2.1.0.")
@click.option("--list-rules", is_flag=True, help="List the rules.")
@json_option
@click.pass_context
def preflight(
    context: click.Context,
    targets: tuple[str, ...],
    fix: bool,
    write_files: bool,
    run_it: bool,
    run_args: str,
    run_timeout: float,
    ignored: tuple[str, ...],
    strict: bool,
    sarif: bool,
    list_rules: bool,
) -> None:
    """Find in Python sources what a Neuron device does not do, before there is one.

    Sources are read, not imported. Exit 1 if there are errors, or warnings with --strict; a comment
    `# preflight: ignore[RULE]` silences a line.

    \b
    Examples:
      neuron-env preflight train.py src/
      neuron-env preflight model.py:factory --run
      neuron-env preflight train.py --fix | git apply
      neuron-env preflight src --sarif > preflight.sarif
      neuron-env preflight train.py --run --run-args '--steps 2'
    """
    from neuron_runtime.preflight import running
    from neuron_runtime.preflight.examine import ALL_RULES, examine
    from neuron_runtime.preflight.targets import files_of

    rules = {**ALL_RULES, **running.RULES}
    out = output()
    if list_rules:
        _list_rules()
        return
    _check_options(targets, fix, write_files, run_it, run_args, sarif)
    if unknown := sorted({*ignored} - {*rules}):
        raise click.UsageError(f"there is no rule `{unknown[0]}`; see --list-rules")
    try:
        paths = list(dict.fromkeys(str(path) for target in targets for path in files_of(target)))
    except NeuronEnvError as error:
        raise click.UsageError(f"{error}; {error.hint}") from error
    examined = [examine(path, Path(path).read_bytes(), ignored) for path in paths]
    if write_files:
        changed = _write(examined)
        examined = [
            examine(it.path, Path(it.path).read_bytes(), ignored) if it.path in changed else it for it in examined
        ]
    findings = [finding for it in examined for finding in it.findings]
    if run_it:
        out.note(f"running {targets[0]} on the device, at most {run_timeout:g} s")
        findings += running.run(targets[0], paths[0], shlex.split(run_args), timeout=run_timeout, ignored=ignored)
    if sarif:
        from neuron_runtime.preflight.sarif import sarif_log
        from neuron_runtime.version import VERSION

        out.json_text(sarif_log(findings, rules.values(), VERSION))
    elif out.mode is Mode.JSON:
        out.json_document(
            {"files": paths, "findings": [it.to_json() for it in findings], "ran": run_it, "counts": _counts(findings)}
        )
    elif fix and not write_files:
        _print_diff(examined)
    else:
        _tell(findings, len(paths))
    counts = _counts(findings)
    context.exit(1 if counts["error"] or (strict and counts["warning"]) else 0)


def _check_options(
    targets: tuple[str, ...], fix: bool, write_files: bool, run_it: bool, run_args: str, sarif: bool
) -> None:
    if not targets:
        raise click.UsageError("name files, directories or MODULE:FACTORY")
    if write_files and not fix:
        raise click.UsageError("`--write` needs `--fix`")
    machine = sarif or output().mode is Mode.JSON
    if sarif and output().mode is Mode.JSON:
        raise click.UsageError("`--json` and `--sarif` exclude each other")
    if fix and not write_files and (machine or run_it):
        raise click.UsageError("`--fix` prints a diff and nothing else; add `--write`, or leave out the other")
    if run_it and (len(targets) != 1 or Path(targets[0]).is_dir()):
        raise click.UsageError("`--run` takes one script or one MODULE:FACTORY")
    if run_args and not run_it:
        raise click.UsageError("`--run-args` needs `--run`")


def _write(examined: list[Examined]) -> set[str]:
    from neuron_runtime.preflight.mending import mended, write

    changed = set()
    for it in examined:
        if (text := mended(it)) is not None:
            write(it, text)
            changed.add(it.path)
            output().note(f"changed {it.path}")
    return changed


def _print_diff(examined: list[Examined]) -> None:
    from neuron_runtime.preflight.mending import diff, mended

    out = output()
    left = 0
    for it in examined:
        left += sum(not finding.fixable for finding in it.findings)
        if (text := mended(it)) is not None:
            out.verbatim(diff(it, text))
    if left:
        out.note(f"left for a person: {left} (run it without --fix)")


def _tell(findings: list[Finding], files: int) -> None:
    out = output()
    for it in findings:
        where = f"{it.path}:{it.line}:{it.column}"
        out.line(f"{where}: {it.level.value}: {it.what} [{it.rule.id}]", fg=_COLORS[it.level.value])
        out.line(f"    {it.rule.why}")
        if it.instead:
            out.line(f"    → {it.instead}" + (" (--fix)" if it.fixable else ""))
    counts = _counts(findings)
    told = ", ".join(f"{counts[name]} {name}s" for name in ("error", "warning", "note"))
    out.line(f"{files} file{'s' if files != 1 else ''}: {told}; {sum(it.fixable for it in findings)} for --fix")


def _counts(findings: list[Finding]) -> dict[str, int]:
    return {name: sum(it.level.value == name for it in findings) for name in ("error", "warning", "note")}


def _list_rules() -> None:
    from neuron_runtime.preflight import running
    from neuron_runtime.preflight.examine import ALL_RULES

    rules = {**ALL_RULES, **running.RULES}
    out = output()
    if out.mode is Mode.JSON:
        out.json_document({"rules": [{"id": it.id, "level": it.level.value, "why": it.why} for it in rules.values()]})
        return
    out.table(["rule", "level", "why"], [(it.id, it.level.value, it.why) for it in rules.values()])
