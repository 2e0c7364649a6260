"""neuron-env compile: PyTorch programs into the cache, with no training script and no hardware."""

from __future__ import annotations

from pathlib import Path

import click

from neuron_runtime.errors import NeuronEnvError

from .output import Mode, json_option, output
from .programs import cache_options, describe_result, open_cache, result_document


@click.command("compile")
@click.argument("programs", nargs=-1, required=True, metavar="MODULE:FACTORY...")
@click.option("--target", default="trn2", show_default=True, help="The NeuronCore generation to compile for.")
@click.option("--lnc", type=click.Choice(["1", "2"]), default="2", show_default=True, help="Logical NeuronCore size.")
@click.option("-O", "opt_level", type=click.IntRange(1, 3), help="Optimisation level.  [default: 2]")
@click.option(
    "-o", "--output", "destination", type=click.Path(path_type=Path), help="Also write the NEFF there (one program)."
)
@cache_options
@json_option
def compile_command(
    programs: tuple[str, ...],
    target: str,
    lnc: str,
    opt_level: int | None,
    destination: Path | None,
    cache_url: str | None,
    cache_local_dir: str | None,
) -> None:
    """Compile PyTorch programs into the cache, each once across all who share it.

    MODULE:FACTORY names a function without arguments that returns a torch.nn.Module and example inputs:
    `package.module:function` or `path/to/file.py:function`. The inputs' shapes are those that are compiled.

    \b
    Examples:
      neuron-env compile examples/minilm/model.py:batch8_seq32
      neuron-env compile model.py:prefill model.py:decode --cache-url /fsx/neuron-cache
      neuron-env compile model.py:factory --target trn3 -o model.neff
    """
    if destination is not None and len(programs) > 1:
        raise click.UsageError("`--output` takes one program")
    from neuron_runtime.compiler.warm import WarmCompiler
    from torch_neuronx import Program, build_example
    from torch_neuronx.build import NeffBuilder, compile_options

    out = output()
    options = compile_options(target, int(lnc), opt_level)
    documents = []
    with WarmCompiler() as compiler:
        builder = NeffBuilder(open_cache(cache_url, cache_local_dir), compiler)
        for reference in programs:
            label = reference.rpartition(":")[2]
            example = build_example(reference)
            result = builder.build(Program.build(example.module, example.args, example.kwargs), options, label=label)
            documents.append(result_document(label, result))
            if out.human:
                out.line(describe_result(label, result))
            if destination is not None:
                try:
                    destination.write_bytes(result.neff)
                except OSError as error:
                    raise NeuronEnvError(f"cannot write {destination}: {error.strerror}") from error
        if out.mode is Mode.JSON:
            out.json_document({"programs": documents, "statistics": builder.cache.stats.to_json()})
