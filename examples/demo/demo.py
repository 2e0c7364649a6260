"""The demo: simulated Trainium instances that share one NEFF cache train real models.

    make demo

Act one is cold, act two warm, and in act three the instance that compiles is killed. The shared cache stays in
`.demo/`, so that a second run compiles nothing; else nothing outlives the demo.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from instance import DemoFailedError
from show import fallbacks, first_step, require, say, show_compiles, show_losses, show_starts, total
from stage import Stage

from cache_server.storage import open_tier
from neuron_runtime.compiler.version import COMPILER_NAME

LEASE_SECONDS = 3.0


def main() -> int:
    parser = argparse.ArgumentParser(description="Simulated instances that share one NEFF cache train real models.")
    parser.add_argument("--keep", type=Path, default=Path(".demo"), help="where the shared cache is, and stays")
    kept = parser.parse_args().keep.absolute()
    kept.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    try:
        with Stage() as stage:
            act_together(stage, kept)
            act_warm(stage, kept)
            act_killed(stage)
    except DemoFailedError as error:
        say(f"[bold red]failed[/]: {error}")
        return 1
    except KeyboardInterrupt:
        say("\ninterrupted; nothing is left running")
        return 130
    say(f"\n[bold green]done[/] in {time.monotonic() - began:.0f} s: each graph compiled once, whoever lives")
    return 0


def act_together(stage: Stage, kept: Path) -> None:
    shared = kept / "cache"
    known = graphs_in(shared)
    say("[bold]neuron-env demo[/]: real models, unchanged but for `.to('neuron')`, on [bold]simulated[/] Trainium")
    say("instances that share one NEFF cache. Each operator with each signature is a graph to compile.\n")
    if known:
        say(f"[bold]1. Together.[/] Instances a and b start at once; {known} graphs are known from earlier runs")
    else:
        say("[bold]1. Cold.[/] Instances a and b start at once; nobody has compiled anything")
    both = [
        stage.start("a", shared, "train.py", "gpt", "digits", "minilm"),
        stage.start("b", shared, "train.py", "gpt", "minilm", "digits"),
    ]
    for instance in both:
        instance.until("done")
    show_compiles(both)
    compiles, graphs = int(total(both, "compiles")), graphs_in(shared)
    require(compiles + known == graphs, f"{compiles} compiles for {graphs - known} new graphs")
    before = f", {known} of them compiled in earlier runs" if known else ""
    say(f"   {graphs} graphs{before}; {compiles} compiles: [bold]each compiled once[/], and had by both")
    say(f"   operators that fell back to the host: {fallbacks(both)}\n")
    show_losses(both[0])
    if not known:
        (kept / "cold.json").write_text(json.dumps({f"cold, instance {i.name}": first_step(i) for i in both}))
    for instance in both:
        instance.end()


def act_warm(stage: Stage, kept: Path) -> None:
    say("\n[bold]2. Warm.[/] Instance c starts: its own tier is empty, the shared cache full")
    third = stage.start("c", kept / "cache", "train.py", "gpt")
    third.until("done")
    compiles = int(total([third], "compiles"))
    require(compiles == 0, f"{compiles} compiles, with everything in the cache")
    say("   From the start of the process to the end of the GPT's first step, 0 compiles:")
    show_starts({**first_steps_of_the_cold_run(kept), "warm, instance c": first_step(third)})
    third.end()


def first_steps_of_the_cold_run(kept: Path) -> dict[str, float]:
    """What it was when nothing was cached, in seconds; nothing where that is not known."""
    try:
        return {str(name): float(took) for name, took in json.loads((kept / "cold.json").read_text()).items()}
    except (OSError, ValueError, AttributeError):
        return {}


def act_killed(stage: Stage) -> None:
    say("\n[bold]3. Killed.[/] A new cache, MiniLM as one graph; who compiles it is killed -9 in the middle")
    shared, go = stage.place / "shared", {name: stage.place / f"go-{name}" for name in "de"}
    victim, heir = (stage.start(n, shared, "compile.py", str(go[n]), lease=LEASE_SECONDS) for n in "de")
    for instance in (victim, heir):
        instance.until("ready")
    go["d"].touch()
    victim.until("phase", phase="compiling")
    go["e"].touch()
    heir.until("waiting")
    victim.kill()
    killed = time.monotonic()
    heir.until("phase", phase="compiling")
    took = time.monotonic() - killed
    result = heir.until("graph")
    require(result["took_over"], "instance e did not take over")
    require(result["difference"] < 1e-5, f"the embeddings differ from the CPU's by {result['difference']:.1e}")
    say("   Instance d was compiling and is dead. e, which waited for it, took over", end=" ")
    say(f"[bold]{took:.1f} s[/] later, compiled\n   in {result['compile_seconds']:.1f} s, and", end=" ")
    say(f"embeds as the CPU does (to {result['difference']:.0e}). Another machine would see\n   d's death", end=" ")
    say(f"when its lease runs out: after {LEASE_SECONDS:g} s here, 12 s by default.")


def graphs_in(shared: Path) -> int:
    """How many graphs the shared tier holds a NEFF of."""
    if not shared.exists():
        return 0
    entries = open_tier(str(shared)).store.entries()
    return sum(entry.producer.compiler.startswith(COMPILER_NAME) for entry in entries)


if __name__ == "__main__":
    sys.exit(main())
