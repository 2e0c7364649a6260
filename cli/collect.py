"""neuron-env collect: everything about a host that matters to Neuron."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from neuron_runtime.errors import NeuronEnvError

from .output import SCHEMA_VERSION, Mode, json_option, output

if TYPE_CHECKING:
    from neuron_runtime.host.host import Host


_SECONDS = click.FloatRange(0.1)


@click.command("collect")
@click.option("--markdown", is_flag=True, help="Print Markdown, to paste into an issue.")
@click.option(
    "--output", "target", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write to FILE."
)
@click.option("--redact", is_flag=True, help="Hide account and instance ids, addresses and home directories as well.")
@click.option("--instance-metadata", is_flag=True, help="Ask EC2's metadata service, too.")
@click.option("--proof/--no-proof", default=True, show_default=True, help="Compute something on the device.")
@click.option(
    "--proof-timeout", type=_SECONDS, default=120, show_default=True, help="What the proof may take, in seconds."
)
@click.option("--probe-timeout", type=_SECONDS, default=2, show_default=True, help="What each other probe may take.")
@click.option("--python", metavar="PATH", help="Look into this interpreter's environment instead of this one.")
@click.option("--image", metavar="DIR", help="Look into an unpacked image, running nothing of it.")
@json_option
@click.pass_context
def collect(
    context: click.Context,
    markdown: bool,
    target: Path | None,
    redact: bool,
    instance_metadata: bool,
    proof: bool,
    proof_timeout: float,
    probe_timeout: float,
    python: str | None,
    image: str | None,
) -> None:
    """Collect what there is to know about this host, and prove whether PyTorch can use its device.

    \b
    Examples:
      neuron-env collect
      neuron-env collect --redact --markdown --output report.md
      neuron-env collect --json --no-proof | jq .sections.driver
      neuron-env collect --python /opt/aws_neuronx_venv_torch_neuronx_2_14_0/bin/python

    The exit code is 0 only if a computation on the device came out right. The proof runs in a process of its own and
    takes one NeuronCore; everything else only reads. A probe that hangs is reported and left behind. Tokens and
    passwords are never shown.
    """
    from neuron_runtime.host.redaction import hide_secrets
    from neuron_runtime.host.redaction import redact as redacted
    from neuron_runtime.host.report import collect_host

    out = output()
    if markdown and out.mode is Mode.JSON:
        raise click.UsageError("`--json` and `--markdown` exclude each other", context)
    host = open_host(image)
    report = collect_host(
        host,
        python=python,
        proof=proof,
        proof_timeout=proof_timeout,
        metadata=instance_metadata,
        probe_timeout=probe_timeout,
    )
    document = report.to_json()
    document = redacted(document, host.environ.get("HOME")) if redact else hide_secrets(document)
    if target is None:
        _print(document, markdown)
    else:
        _write(target, _text(document, markdown, out.mode))
        out.note(f"written to {target}; {document['verdict']}")
    if not report.usable:
        context.exit(1)


def open_host(image: str | None) -> Host:
    """This machine, or the directory of an unpacked image."""
    from neuron_runtime.host.host import Host

    if image is None:
        return Host.here()
    if not Path(image).is_dir():
        raise NeuronEnvError(
            f"{image} is not the directory of an unpacked image",
            hint=f"unpack one with `mkdir rootfs && docker export $(docker create {image}) | tar -x -C rootfs`",
        )
    return Host.image(Path(image))


def _print(document: dict[str, Any], markdown: bool) -> None:
    out = output()
    if out.mode is Mode.JSON:
        out.json_document(document)
        return
    for line in _text(document, markdown, out.mode).splitlines():
        verdict = line.startswith("verdict: ")
        out.line(line, **({"bold": True, "fg": "green" if document["usable"] else "red"} if verdict else {}))


def _text(document: dict[str, Any], markdown: bool, mode: Mode) -> str:
    from neuron_runtime.host.text import report_lines, report_markdown

    if mode is Mode.JSON:
        import json

        return json.dumps({"schema_version": SCHEMA_VERSION, **document}, indent=2) + "\n"
    return report_markdown(document) if markdown else "\n".join(report_lines(document)) + "\n"


def _write(target: Path, text: str) -> None:
    try:
        target.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise NeuronEnvError(f"cannot write {target}: {error.strerror}") from error
