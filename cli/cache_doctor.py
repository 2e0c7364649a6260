"""neuron-env cache doctor: what is wrong with the vendor's caches on this host."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from neuron_runtime.errors import NeuronEnvError

from .output import Mode, json_option, output

if TYPE_CHECKING:
    from cache_server.doctor.finding import Finding

_DIRECTORY = click.Path(path_type=Path, file_okay=False)
_TORCH, _LOCKS, _LEGACY = "/tmp/neff_cache", "/tmp/local_cache", "/var/tmp/neuron-compile-cache"  # noqa: S108 - theirs
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

    if clear_all and not fix:
        raise click.UsageError("`--clear-compiler-errors` needs `--fix`")
    out = output()
    setting = os.environ.get("NEURON_LOGICAL_NC_CONFIG", "")
    lnc = lnc or (int(setting) if setting in ("1", "2") else None)
    looked, findings = [], []
    try:
        for place, found in _rounds(torch, legacy, target, lnc, deep, clear_all):
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


def _rounds(
    torch: Path | None, legacy: Path | None, target: str | None, lnc: int | None, deep: bool, clear_all: bool
) -> Iterator[tuple[Path, list[Finding]]]:
    from cache_server.doctor.legacy import examine_legacy
    from cache_server.doctor.locks import examine_locks
    from cache_server.doctor.neffs import examine
    from cache_server.doctor.places import examine_disk, examine_mount, mount_of

    root = _place(torch, "TORCH_NEURONX_NEFF_CACHE_DIR", _TORCH)
    if root is not None:
        found = [*examine_mount(root, mount_of(root), locks=False), *examine_disk(root)]
        yield root, [*found, *examine(root, lnc=lnc, target=target, deep=deep)]
    local = _place(None, "TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR", _LOCKS)
    if local is not None:
        yield local, [*examine_mount(local, mount_of(local), locks=True), *examine_locks(local / "locks")]
    old = _place(legacy, "NEURON_COMPILE_CACHE_URL", _LEGACY)
    if old is not None:
        mount = mount_of(old)
        found = [*examine_mount(old, mount, locks=True), *examine_disk(old)]
        shared = mount is None or mount.is_shared
        yield old, [*found, *examine_legacy(old, shared=shared, clear_all=clear_all)]


def _place(given: Path | None, variable: str, default: str) -> Path | None:
    """The directory that is meant; None for a default that is not there, or a bucket. Raises for one that was named."""
    named = os.environ.get(variable, "")
    if given is None and "://" in named and not named.startswith("file://"):
        return None
    place = given or Path(named.removeprefix("file://") or default)
    if place.is_dir():
        return place.absolute()
    if given is not None or named:
        source = "`--dir` or `--legacy-dir`" if given is not None else f"`{variable}`"
        raise NeuronEnvError(f"{place} is not a directory", hint=f"it is what {source} names")
    return None


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
