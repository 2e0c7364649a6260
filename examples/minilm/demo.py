"""The demo: two simulated Trainium instances share one NEFF cache and embed sentences with a real model.

    make demo

Act one is cold, act two warm, and in act three the instance that compiles is killed. Nothing outlives the demo.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from sentences import SENTENCES

from neuron_runtime.protocol.paths import RuntimePaths
from neuron_runtime.tools.listing import DEVICE_COLUMNS, PROCESS_COLUMNS, listing_header, listing_rows, machine_of
from neuron_runtime.tools.snapshot import stop_daemon

LEASE_SECONDS = 3.0
PATIENCE_SECONDS = 300.0
TOLERANCE = 1e-5

console = Console(highlight=False, width=max(118, Console().width))


class DemoFailedError(Exception):
    """The demo did not show what it promises."""


class Instance:
    """A process with a runtime, a local cache tier and nothing else in common with the others but `shared`."""

    def __init__(self, name: str, place: Path, shared: Path, tier: str) -> None:
        self.name = name
        self.results: dict[str, dict[str, Any]] = {}
        self.final: dict[str, Any] = {}
        self.events: Queue[dict[str, Any] | None] = Queue()
        environ = os.environ | {
            "NEURON_ENV_RUNTIME_DIR": str(place / name),
            "NEURON_ENV_CACHE_LEASE_SECONDS": str(LEASE_SECONDS),
            "NEURON_PROCESS_TAG": f"instance-{name}",
        }
        self.process = subprocess.Popen(
            [
                sys.executable,
                str(Path(__file__).with_name("instance.py")),
                *("--name", name, "--shared", str(shared), "--local", str(place / f"tier-{name}-{tier}")),
            ],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.put(json.loads(line))
        self.events.put(None)

    def until(self, event: str, **facts: Any) -> dict[str, Any]:
        """Tells events on until this one comes. Raises DemoFailedError when the instance ends, or stalls, before it."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                found = self.events.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                raise DemoFailedError(f"instance {self.name} said nothing for {PATIENCE_SECONDS:g} s") from None
            if found is None:
                raise DemoFailedError(f"instance {self.name} ended with exit status {self.process.wait()}")
            self._tell(found)
            if found["event"] == event and facts.items() <= found.items():
                return found

    def _tell(self, found: dict[str, Any]) -> None:
        if found["event"] == "result":
            self.results[found["graph"]] = found
        elif found["event"] == "snapshot":
            self.final = found

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def main() -> int:
    # A short place: a Unix socket's path has room for about a hundred characters.
    place = Path(tempfile.mkdtemp(prefix="neuron-demo-"))
    place.chmod(0o700)
    instances: list[Instance] = []

    def pair(shared: str, tier: str) -> tuple[Instance, Instance]:
        started = Instance("a", place, place / shared, tier), Instance("b", place, place / shared, tier)
        instances.extend(started)
        for instance in started:
            instance.until("ready")
        return started

    began = time.monotonic()
    try:
        console.print("[bold]neuron-env demo[/]: sentence embeddings with all-MiniLM-L6-v2 (22.6M real weights), two")
        console.print("graphs, on two [bold]simulated[/] Trainium instances that share one cache directory\n")
        cold = act_cold(pair)
        act_warm(pair, cold)
        act_killed(pair, cold)
        console.print(
            f"\n[bold green]done[/] in {time.monotonic() - began:.0f} s: each graph compiled once, whoever lives"
        )
        return 0
    except DemoFailedError as error:
        console.print(f"[bold red]failed[/]: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        for instance in instances:
            instance.end()
        for name in ("a", "b"):
            stop_daemon(RuntimePaths(place / name))
        shutil.rmtree(place, ignore_errors=True)


def act_cold(pair: Any) -> dict[str, Any]:
    console.print("[bold]1. Cold.[/] Two instances start together; neither has seen the graphs")
    both = pair("shared", "first")
    for instance in both:
        instance.go()
    for instance in both:
        instance.until("snapshot")
    show_results(both)
    outcomes = [r["outcome"] for i in both for r in i.results.values()]
    compiles = outcomes.count("compiled")
    graphs = len(both[0].results)
    require(compiles == graphs, f"{compiles} compiles for {graphs} graphs")
    waited = sum(r["waited_seconds"] for i in both for r in i.results.values())
    saved = sum(i.final["statistics"]["seconds_saved"] for i in both)
    console.print(f"   {graphs} graphs, {compiles} compiles; {waited:.2f} s waited, {saved:.2f} s of compiling saved\n")
    show_devices(both[0])
    show_models(both)
    pairs = both[0].results["minilm-8x32"]["similarity"]
    console.print("   How alike the sentences are (cosine of their embeddings):")
    for number, similarity in enumerate(pairs):
        console.print(f"   {similarity:5.2f}  {SENTENCES[2 * number]}")
        console.print(f"          {SENTENCES[2 * number + 1]}")
    return both[0].results


def act_warm(pair: Any, cold: dict[str, Any]) -> None:
    console.print("\n[bold]2. Warm.[/] Both start again, their local tiers kept")
    both = pair("shared", "first")
    for instance in both:
        instance.go()
    for instance in both:
        instance.until("snapshot")
    show_results(both)
    compiles = sum(i.final["statistics"]["compiles"] for i in both)
    require(compiles == 0, f"{compiles} compiles, with everything in the cache")
    require_equal(both, cold)
    saved = sum(i.final["statistics"]["seconds_saved"] for i in both)
    console.print(f"   0 compiles, {saved:.2f} s of compiling saved")


def act_killed(pair: Any, cold: dict[str, Any]) -> None:
    console.print("\n[bold]3. Killed.[/] A new cache; the instance that compiles is killed -9 in the middle of it")
    victim, heir = pair("shared-anew", "second")
    victim.go()
    victim.until("phase", phase="compiling")
    heir.go()
    heir.until("waiting")
    victim.process.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    console.print("   instance a was compiling and is dead. On its own machine that is seen at once; from another one")
    console.print(f"   its lease would have to run out first ({LEASE_SECONDS:g} s here, 12 s by default)")
    heir.until("phase", phase="compiling")
    console.print(f"   instance b took over {time.monotonic() - killed:.1f} s after the kill")
    heir.until("snapshot")
    show_results((heir,))
    require(any(r["took_over"] for r in heir.results.values()), "instance b did not take over")
    require_equal((heir,), cold)
    console.print("   the embeddings are those of act one")


def require(held: bool, otherwise: str) -> None:
    if not held:
        raise DemoFailedError(otherwise)


def require_equal(instances: tuple[Instance, ...], cold: dict[str, Any]) -> None:
    for instance in instances:
        for graph, result in instance.results.items():
            off = abs(result["checksum"] - cold[graph]["checksum"]) / cold[graph]["checksum"]
            require(off < TOLERANCE, f"{graph} on instance {instance.name} is off by {off:.1e}")


def show_results(instances: tuple[Instance, ...]) -> None:
    names = {"compiled": "compiled here", "shared_hit": "shared directory", "local_hit": "local tier"}
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column("   instance")
    for name in ("graph", "NEFF from"):
        table.add_column(name)
    for name in ("compiled s", "waited s", "saved s", "run ms", "max diff to CPU"):
        table.add_column(name, justify="right")
    for instance in instances:
        for graph, r in instance.results.items():
            require(r["max_difference"] < TOLERANCE, f"{graph} differs from CPU PyTorch by {r['max_difference']:.1e}")
            came = names.get(r["outcome"], r["outcome"]) + (" (took over)" if r["took_over"] else "")
            numbers = (f"{r[k]:.2f}" if r[k] else "-" for k in ("compile_seconds", "waited_seconds", "saved_seconds"))
            run, difference = f"{r['run_seconds'] * 1e3:.1f}", f"{r['max_difference']:.1e}"
            table.add_row(f"   {instance.name}", graph, came, *numbers, run, difference)
    console.print(table)


def show_devices(instance: Instance) -> None:
    snapshot = instance.final["snapshot"]
    machine = machine_of(snapshot)
    for process in snapshot["processes"]:
        program, *arguments = process["command"].split(" ")
        process["command"] = f"{Path(program).name} {Path(arguments[0]).name}" if arguments else Path(program).name
    console.print(f"   `neuron-env runtime ls` on instance {instance.name}, while it ran:")
    for line in listing_header(machine):
        console.print(f"   {line}", markup=False)
    table = Table(box=box.ASCII2)
    for name in DEVICE_COLUMNS + PROCESS_COLUMNS:
        table.add_column(name, no_wrap=True)
    for row in listing_rows(machine, snapshot["processes"]):
        table.add_row(*row)
    console.print(Padding(table, (0, 0, 1, 3)))


def show_models(instances: tuple[Instance, ...]) -> None:
    console.print("   Per NEFF, as the executors count:")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("   instance", "NEFF", "uuid"):
        table.add_column(name)
    for name in ("runs", "mean ms", "GFLOP/s", "code KiB", "scratch MiB"):
        table.add_column(name, justify="right")
    for instance in instances:
        for process in instance.final["snapshot"]["processes"]:
            for model in process["models"]:
                mean = model["total_seconds"] / max(1, model["executions"])
                table.add_row(
                    f"   {instance.name}",
                    model["name"],
                    model["uuid"][:12],
                    str(model["executions"]),
                    f"{mean * 1e3:.2f}",
                    f"{model['flops'] / max(mean, 1e-9) / 1e9:.1f}",
                    f"{model['code_bytes'] / 1024:.0f}",
                    f"{model['scratch_bytes'] / 2**20:.1f}",
                )
    console.print(table)
    console.print()


if __name__ == "__main__":
    sys.exit(main())
