"""neuron-env cache doctor: what is wrong with the vendor's caches on this host."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from neuron_runtime.errors import NeuronEnvError

from .output import Mode, json_option, output

if TYPE_CHECKING:
    from cache_server.doctor.finding import Finding

_DIRECTORY = click.Path(path_type=Path, file_okay=False)
_MARKS = {"error": "✗", "warning": "!", "note": "·"}


@click.command("doctor")
@click.option(
    "--dir", "torch", type=_DIRECTORY, metavar="DIR", help="TorchNeuron's.  [env: TORCH_NEURONX_NEFF_CACHE_DIR]"
)
@click.option(
    "--legacy-dir", "legacy", type=_DIRECTORY, metavar="DIR", help="libneuronxla's.  [env: NEURON_COMPILE_CACHE_URL]"
)
@click.option("--target", metavar="TARGET", help="The target of this host, such as trn2.")
@click.option("--lnc", type=click.IntRange(1, 2), help="Its LNC.  [env: NEURON_LOGICAL_NC_CONFIG]")
@click.option("--deep", is_flag=True, help="Read whole NEFFs, and compare them with their own digests.")
@click.option("--fix", is_flag=True, help="Mend what is safe to mend beside running jobs.")
@click.option("--clear-compiler-errors", "clear_all", is_flag=True, help="With --fix: forget those failures, too.")
@json_option
@click.pass_context
def doctor_command(
    context: click.Context,
    torch: Path | None,
    legacy: Path | None,
    target: str | None,
    lnc: int | None,
    deep: bool,
    fix: bool,
    clear_all: bool,
) -> None:
    """Find what the vendor's caches do not tell: unreadable, empty and damaged NEFFs, dead locks, unfit mounts.

    \b
    Examples:
      neuron-env cache doctor
      neuron-env cache doctor --dir /fsx/neff_cache --lnc 2 --deep
      neuron-env cache doctor --legacy-dir /var/tmp/neuron-compile-cache --fix

    Looks into the directories that the vendor's variables or the options name, and into their defaults where those are
    there. Exit 1 if there are errors that are not mended.
    """
    from cache_server.doctor.finding import Weight, mend_all
    from cache_server.doctor.rounds import vendor_caches

    if clear_all and not fix:
        raise click.UsageError("`--clear-compiler-errors` needs `--fix`")
    out = output()
    setting = os.environ.get("NEURON_LOGICAL_NC_CONFIG", "")
    lnc = lnc or (int(setting) if setting in ("1", "2") else None)
    looked, findings = [], []
    try:
        for place, found in vendor_caches(torch, legacy, target=target, lnc=lnc, deep=deep, clear_all=clear_all):
            looked.append(place)
            findings += found
    except OSError as error:
        raise NeuronEnvError(f"{error.filename}: {error.strerror}", hint="run it as the directory's owner") from error
    mended = mend_all(findings) if fix else []
    whole = {id(finding) for finding, count, failed in mended if count == len(finding.places) and not failed}
    if out.mode is Mode.JSON:
        out.json_document(
            {
                "looked_into": [str(place) for place in looked],
                "findings": [{**it.to_json(), "mended": id(it) in whole} for it in findings],
            }
        )
    else:
        _tell(findings, looked)
        for finding, count, failed in mended:
            out.line(f"{finding.kind}: mended {count} of {len(finding.places)}")
            for why in failed[:3]:
                out.warning(why)
    left = [it for it in findings if it.weight is Weight.ERROR and id(it) not in whole]
    context.exit(1 if left else 0)


def _tell(findings: list[Finding], looked: list[Path]) -> None:
    out = output()
    if not looked:
        out.line("there is no cache of the vendor's software here; name one with `--dir` or `--legacy-dir`")
    for finding in findings:
        out.line(f"{_MARKS[finding.weight.value]} {finding.weight.value}: {finding.text}")
        for place in finding.shown:
            out.line(f"    {place}")
        if finding.hint:
            out.line(f"    → {finding.hint}")
    if looked:
        out.line(f"looked into {', '.join(map(str, looked))}; findings: {len(findings) or 'none'}")
