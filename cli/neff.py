"""neuron-env neff: look into NEFF files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .output import Mode, json_option, output, quiet_option, size_text

if TYPE_CHECKING:
    from neuron_runtime.neff import Neff
    from neuron_runtime.tensors import TensorSpec

FILE = click.argument("file", type=click.Path(path_type=Path))


@click.group()
def neff() -> None:
    """Look into NEFF files, unpack and verify them.

    \b
    Examples:
      neuron-env neff info module.neff
      neuron-env neff ls module.neff
      neuron-env neff verify module.neff

    NEFFs of the Neuron compiler are read as far as their layout is published, those of neuron-env whole.
    """


@neff.command()
@FILE
@json_option
def info(file: Path) -> None:
    """Show what a NEFF is and what it takes and gives.

    \b
    Examples:
      neuron-env neff info module.neff
      neuron-env neff info module.neff --json | jq .manifest.inputs
    """
    from neuron_runtime.neff import read_neff

    out, found = output(), read_neff(file)
    if out.mode is Mode.JSON:
        out.json_document(_info_document(file, found))
        return
    out.record({**_header_fields(file, found), **_manifest_fields(found)})
    if found.manifest:
        out.line()
        out.table(
            ("tensor", "name", "dtype", "shape", "bytes"),
            [
                *_tensor_rows("input", found.manifest.inputs),
                *_tensor_rows("output", found.manifest.outputs),
            ],
        )


@neff.command("ls")
@FILE
@json_option
@quiet_option
def ls(file: Path) -> None:
    """List the files in a NEFF.

    \b
    Examples:
      neuron-env neff ls module.neff
      neuron-env neff ls module.neff --quiet | grep def.json
    """
    from neuron_runtime.neff import read_neff

    out, found = output(), read_neff(file)
    if out.mode is Mode.JSON:
        members = [{"name": member.name, "size": member.size} for member in found.members]
        out.json_document({"file": str(file), "simulated": found.simulated, "members": members})
        return
    out.table(("bytes", "name"), [(member.size, member.name) for member in found.members], ids=1)


@neff.command()
@FILE
@click.argument("directory", type=click.Path(path_type=Path), required=False)
@json_option
def unpack(file: Path, directory: Path | None) -> None:
    """Unpack a NEFF into a directory.

    \b
    Examples:
      neuron-env neff unpack module.neff
      neuron-env neff unpack module.neff /var/tmp/unpacked

    DIRECTORY is made, or is there and empty; by default it is FILE's name without its ending.
    """
    from neuron_runtime.neff import unpack_neff

    target = directory or (file.with_suffix("") if file.suffix else file.with_name(file.name + ".unpacked"))
    out, found = output(), unpack_neff(file, target)
    if out.mode is Mode.JSON:
        names = [member.name for member in found.members]
        out.json_document({"directory": str(target), "bytes": found.unpacked_size, "members": names})
        return
    out.line(f"unpacked {len(found.members)} files, {size_text(found.unpacked_size)}, into: {target}")


@neff.command()
@FILE
@json_option
@click.pass_context
def verify(context: click.Context, file: Path) -> None:
    """Check a NEFF and print every check.

    \b
    Examples:
      neuron-env neff verify module.neff
      find /fsx/cache -name '*.neff' -exec neuron-env neff verify {} \\;

    The exit code is 1 if any check fails. A NEFF of neuron-env is also checked against its manifest: that each
    file in it is the one described, and that header and uuid follow from the content.
    """
    from neuron_runtime.neff import verify_neff

    out, findings = output(), verify_neff(file)
    failed = [finding for finding in findings if not finding.ok]
    if out.mode is Mode.JSON:
        checks = [finding.to_json() for finding in findings]
        out.json_document({"file": str(file), "ok": not failed, "checks": checks})
    else:
        for finding in findings:
            expected = "" if finding.ok else f", expected {finding.expected}"
            out.check(finding.ok, f"{finding.field}: {finding.found}{expected}")
        out.line()
        verdict = f"{len(failed)} of {len(findings)} checks failed" if failed else f"{len(findings)} checks passed"
        out.line(verdict, bold=True, fg="red" if failed else "green")
    if failed:
        context.exit(1)


def _kind(found: Neff) -> str:
    if found.manifest:
        return f"SIMULATED, by {found.manifest.producer} {found.manifest.version}; no hardware can load it"
    return "not made by neuron-env; the simulated device cannot run it"


def _header_fields(file: Path, found: Neff) -> dict[str, object]:
    header = found.header
    return {
        "file": file,
        "kind": _kind(found),
        "name": header.name,
        "uuid": header.uuid_text,
        "size": f"{size_text(found.size)} ({size_text(found.unpacked_size)} in {len(found.members)} files)",
        "digest": f"{header.hash_algorithm} {header.hash_digest.hex()} (verified)",
        "build version": header.neff_build_version,
        "format": f"NEFF {header.neff_version_major}.{header.neff_version_minor}, package {header.pkg_version}",
        "cores": f"{header.requested_tpb_count}, LNC {header.lnc_size or 'not set'}",
        "feature bits": f"{header.feature_bits:#x}",
    }


def _manifest_fields(found: Neff) -> dict[str, object]:
    manifest = found.manifest
    if manifest is None:
        return {}
    native = manifest.native
    return {
        "target": f"{manifest.target}, -O{manifest.opt_level}",
        "work": f"{manifest.flops:,} flops, {size_text(manifest.bytes_accessed)} accessed",
        "scratch": size_text(manifest.temp_bytes),
        "aliases": ", ".join(f"output {o} on input {i}" for o, i in manifest.aliases) or None,
        "native code": f"{native.format} for {native.arch}, {size_text(native.size)}" if native else None,
    }


def _tensor_rows(role: str, specs: tuple[TensorSpec, ...]) -> list[tuple[object, ...]]:
    return [(role, spec.name, spec.dtype, "×".join(map(str, spec.shape)) or "()", spec.nbytes) for spec in specs]


def _info_document(file: Path, found: Neff) -> dict[str, Any]:
    header = found.header
    return {
        "file": str(file),
        "simulated": found.simulated,
        "size": found.size,
        "unpacked_size": found.unpacked_size,
        "member_count": len(found.members),
        "header": {
            "pkg_version": header.pkg_version,
            "header_size": header.header_size,
            "data_size": header.data_size,
            "neff_version_major": header.neff_version_major,
            "neff_version_minor": header.neff_version_minor,
            "neff_build_version": header.neff_build_version,
            "num_tpb": header.num_tpb,
            "hash_algorithm": header.hash_algorithm,
            "hash": header.hash_digest.hex(),
            "uuid": header.uuid_text,
            "name": header.name,
            "requested_tpb_count": header.requested_tpb_count,
            "tpb_per_node": list(header.tpb_per_node),
            "feature_bits": header.feature_bits,
            "lnc_size": header.lnc_size,
        },
        "manifest": found.manifest.to_json() if found.manifest else None,
    }
