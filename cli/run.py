"""neuron-env run: PyTorch programs on the simulated device, compared with CPU PyTorch."""

from __future__ import annotations

import time
from typing import Any

import click

from .output import Mode, json_option, output
from .programs import cache_options, describe_result, open_cache, result_document


@click.command("run")
@click.argument("programs", nargs=-1, required=True, metavar="MODULE:FACTORY...")
@click.option("--repeat", type=click.IntRange(1), default=3, show_default=True, help="Executions to time.")
@click.option("-O", "opt_level", type=click.IntRange(1, 3), help="Optimisation level.  [default: 2]")
@click.option("--compare/--no-compare", default=True, show_default=True, help="Compare with CPU PyTorch.")
@click.option("--tolerance", type=float, metavar="MAX", help="Exit 1 when the largest difference is above MAX.")
@cache_options
@json_option
@click.pass_context
def run_command(
    context: click.Context,
    programs: tuple[str, ...],
    repeat: int,
    opt_level: int | None,
    compare: bool,
    tolerance: float | None,
    cache_url: str | None,
    cache_local_dir: str | None,
) -> None:
    """Compile PyTorch programs through the cache and run them on the simulated device.

    MODULE:FACTORY names a function without arguments that returns a torch.nn.Module and example inputs. The runtime
    starts by itself; `NEURON_RT_NUM_CORES` and `NEURON_RT_VISIBLE_CORES` say which NeuronCores to take.

    \b
    Examples:
      neuron-env run examples/minilm/model.py:batch8_seq32
      neuron-env run model.py:factory --repeat 20 --tolerance 1e-4
    """
    from neuron_runtime.client import current_runtime
    from neuron_runtime.compiler.warm import WarmCompiler
    from torch_neuronx import Program, build_example
    from torch_neuronx.build import NeffBuilder, compile_options
    from torch_neuronx.loaded import DeviceWeights, LoadedProgram
    from torch_neuronx.reference import largest_difference, reference_result

    out = output()
    if tolerance is not None and not compare:
        raise click.UsageError("`--tolerance` needs `--compare`")
    session = current_runtime()
    options = compile_options(session.target, session.lnc, opt_level)
    weights = DeviceWeights(session)
    documents: list[dict[str, Any]] = []
    with WarmCompiler() as compiler:
        builder = NeffBuilder(open_cache(cache_url, cache_local_dir), compiler)
        for reference in programs:
            label = reference.rpartition(":")[2]
            example = build_example(reference)
            program = Program.build(example.module, example.args, example.kwargs)
            result = builder.build(program, options, label=label)
            loaded = LoadedProgram(program, result.neff, weights, name=label)
            expected = reference_result(example) if compare else None
            first = loaded(*example.args, **example.kwargs)
            seconds = _time(lambda: loaded(*example.args, **example.kwargs), repeat)  # noqa: B023 - called at once
            difference = largest_difference(first, expected) if compare else None
            documents.append(
                result_document(label, result)
                | {
                    "native": loaded.model.native,
                    "load_seconds": loaded.model.load_seconds,
                    "run_seconds": seconds,
                    "max_difference": difference,
                }
            )
            if out.human:
                out.line(describe_result(label, result))
                out.line(_run_line(loaded.model.native, loaded.model.load_seconds, seconds, difference))
        if out.mode is Mode.JSON:
            out.json_document({"simulated": True, "programs": documents, "statistics": builder.cache.stats.to_json()})
    if tolerance is not None and any(not d["max_difference"] <= tolerance for d in documents):
        out.error(f"a result differs from CPU PyTorch by more than {tolerance:g}")
        context.exit(1)


def _time(call: Any, repeat: int) -> float:
    """The median of `repeat` calls, in seconds."""
    import statistics

    durations = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        durations.append(time.perf_counter() - start)
    return statistics.median(durations)


def _run_line(native: bool, load_seconds: float, seconds: float, difference: float | None) -> str:
    source = "native code" if native else "StableHLO"
    text = f"  loaded from {source} in {load_seconds * 1e3:.0f} ms, runs in {seconds * 1e3:.2f} ms (simulated device)"
    return text if difference is None else f"{text}; largest difference to CPU PyTorch {difference:.2e}"
