"""neuron-env compile: PyTorch programs into the cache, with no training script and no hardware."""

from __future__ import annotations

from pathlib import Path

import click

from neuron_runtime.errors import NeuronEnvError

from .output import Mode, json_option, output
from .programs import cache_options, describe_result, open_cache, result_document


@click.command("compile")
@click.argument("programs", nargs=-1, required=True, metavar="PROGRAM...")
@click.option("--target", default="trn2", show_default=True, help="The NeuronCore generation to compile for.")
@click.option("--lnc", type=click.Choice(["1", "2"]), default="2", show_default=True, help="Logical NeuronCore size.")
@click.option("-O", "opt_level", type=click.IntRange(1, 3), help="Optimisation level.  [default: 2]")
@click.option(
    "-o", "--output", "destination", type=click.Path(path_type=Path), help="Also write the NEFF there (one program)."
)
@click.option(
    "--shape", "shapes", multiple=True, metavar="SHAPE", help="Compile for inputs of this shape, such as 1x128."
)
@click.option("--shapes", "shapes_file", type=click.Path(path_type=Path), help="Compile for all shapes of this file.")
@cache_options
@json_option
def compile_command(
    programs: tuple[str, ...],
    target: str,
    lnc: str,
    opt_level: int | None,
    destination: Path | None,
    shapes: tuple[str, ...],
    shapes_file: Path | None,
    cache_url: str | None,
    cache_local_dir: str | None,
) -> None:
    """Compile PyTorch programs into the cache, each once across all who share it.

    A program is MODULE:FACTORY, a function without arguments that returns a torch.nn.Module and example inputs
    (`package.module:function` or `path/to/file.py:function`), or a .pt2 file of torch.export. It is compiled for the
    shapes of its example inputs, or for each `--shape` instead.

    A shape such as 1x128 is for the first tensor among the inputs and for all of the same shape as it; 1x128,1x64
    names one for each tensor. The file of `--shapes` is TOML (`shapes = ["1x128", "1x256"]`) or JSON (the list alone).

    \b
    Examples:
      neuron-env compile examples/minilm/model.py:batch8_seq32
      neuron-env compile model.py:prefill model.py:decode --cache-url /fsx/neuron-cache
      neuron-env compile model.py:factory --target trn3 -o model.neff
      neuron-env compile model.pt2 --shape 1x128 --shape 1x256
    """
    from neuron_runtime.compiler.warm import WarmCompiler
    from torch_neuronx import Program
    from torch_neuronx.build import NeffBuilder, compile_options
    from torch_neuronx.exported import load_example
    from torch_neuronx.input_shapes import parse_shapes, read_shapes, with_shapes

    wanted = [parse_shapes(text) for text in shapes] + (read_shapes(shapes_file) if shapes_file else [])
    if destination is not None and len(programs) * max(len(wanted), 1) > 1:
        raise click.UsageError("`--output` takes one program of one shape")

    out = output()
    options = compile_options(target, int(lnc), opt_level)
    documents = []
    with WarmCompiler() as compiler:
        builder = NeffBuilder(open_cache(cache_url, cache_local_dir), compiler)
        for reference in programs:
            name = Path(reference).stem if reference.endswith(".pt2") else reference.rpartition(":")[2]
            base = load_example(reference)
            for shape in wanted or [None]:
                example = base if shape is None else with_shapes(base, shape)
                label = name if shape is None else f"{name} {','.join('x'.join(map(str, sizes)) for sizes in shape)}"
                result = builder.build(
                    Program.build(example.module, example.args, example.kwargs), options, label=label
                )
                documents.append(result_document(label, result))
                if out.human:
                    out.line(describe_result(label, result))
                if destination is not None:
                    _write(destination, result.neff)
        if out.mode is Mode.JSON:
            out.json_document({"programs": documents, "statistics": builder.cache.stats.to_json()})


def _write(destination: Path, neff: bytes) -> None:
    try:
        destination.write_bytes(neff)
    except OSError as error:
        raise NeuronEnvError(f"cannot write {destination}: {error.strerror}") from error
