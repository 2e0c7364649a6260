"""neuron-env runtime: start, stop and watch the simulated runtime."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from neuron_runtime.errors import NeuronEnvError

from .output import Mode, json_option, output, size_text

if TYPE_CHECKING:
    from neuron_runtime.device.instances import Machine
    from neuron_runtime.protocol.paths import RuntimePaths


@click.group()
def runtime() -> None:
    """Start, stop and watch the runtime daemon of the simulated device.

    \b
    Examples:
      neuron-env runtime start --instance-type trn2.48xlarge
      neuron-env runtime ls -j
      neuron-env runtime top
      neuron-env runtime stop

    Programs start the daemon themselves on first use; it stops when it has been idle for five minutes.
    """


@runtime.command()
@click.option("--instance-type", metavar="TYPE", help="The instance to simulate.  [default: trn2.3xlarge]")
@click.option("--lnc", type=click.Choice(["1", "2"]), help="Physical cores a logical NeuronCore.  [default: 2]")
@click.option(
    "--idle-timeout", type=click.IntRange(0), metavar="SECONDS", help="Stop after so long without a client; 0 never."
)
@click.option("--warm", type=click.IntRange(0), metavar="N", help="Executors kept ready.  [default: 1]")
@click.option("--native", type=click.Choice(["auto", "never"]), help="Whether the NEFFs' native code may run.")
@click.option("--foreground", is_flag=True, help="Serve in this process, log to stderr.")
@json_option
def start(foreground: bool, **options: Any) -> None:
    """Start the daemon, if it does not run yet.

    \b
    Examples:
      neuron-env runtime start
      neuron-env runtime start --instance-type trn3.48xlarge --lnc 1
      neuron-env runtime start --foreground --idle-timeout 0
    """
    from neuron_runtime.config.layers import settings_environment
    from neuron_runtime.daemon.launch import start_daemon
    from neuron_runtime.daemon.settings import DaemonSettings
    from neuron_runtime.protocol.paths import runtime_paths
    from neuron_runtime.tools.snapshot import take_snapshot

    environ = {**settings_environment(), **_environment(**options)}
    wanted = DaemonSettings.from_environment(environ)
    paths, out = runtime_paths(environ), output()
    if foreground:
        os.environ.update(environ)
        from neuron_runtime.daemon.__main__ import serve_foreground

        raise click.exceptions.Exit(serve_foreground())
    pid = 0
    snapshot = take_snapshot(paths)
    if snapshot is None:
        pid = start_daemon(paths, environ)
        snapshot = take_snapshot(paths)
    if snapshot is None:
        raise NeuronEnvError("the runtime daemon has ended again", hint=f"read {paths.log}")
    machine = wanted.machine
    if (snapshot["instance_type"], snapshot["lnc"]) != (machine.instance.name, machine.lnc):
        raise NeuronEnvError(
            f"a runtime with other settings is running: {snapshot['instance_type']} at LNC {snapshot['lnc']} "
            f"(pid {snapshot['pid']})",
            hint="type `neuron-env runtime stop` first",
        )
    if out.mode is Mode.JSON:
        out.json_document({"started": bool(pid), **_status(paths, snapshot)})
    else:
        verb = "started" if pid else "already running"
        out.line(
            f"{verb}: {snapshot['instance_type']} (simulated), LNC {snapshot['lnc']}, pid {snapshot['pid']}, "
            f"socket {paths.socket}"
        )


@runtime.command()
@json_option
def stop() -> None:
    """Stop the daemon; programs that use it lose their NeuronCores.

    \b
    Examples:
      neuron-env runtime stop
    """
    from neuron_runtime.protocol.paths import runtime_paths
    from neuron_runtime.tools.snapshot import stop_daemon

    out, pid = output(), stop_daemon(runtime_paths())
    if out.mode is Mode.JSON:
        out.json_document({"stopped": pid})
    else:
        out.line("no runtime was running" if pid is None else f"stopped: pid {pid}")


@runtime.command()
@json_option
@click.pass_context
def status(context: click.Context) -> None:
    """Show whether the daemon runs, with what, and for whom; exit 1 when it does not run.

    \b
    Examples:
      neuron-env runtime status
      neuron-env runtime status --json | jq .processes
    """
    from neuron_runtime.protocol.paths import runtime_paths
    from neuron_runtime.tools.snapshot import take_snapshot

    out, paths = output(), runtime_paths()
    snapshot = take_snapshot(paths)
    if out.mode is Mode.JSON:
        out.json_document(_status(paths, snapshot))
    elif snapshot is None:
        out.line("not running; programs start it on first use")
        out.record({"socket": paths.socket, "log": paths.log})
    else:
        idle = snapshot["idle_timeout"]
        out.record(
            {
                "runtime": f"{snapshot['runtime_version']} (simulated), pid {snapshot['pid']}",
                "instance": f"{snapshot['instance_type']}, LNC {snapshot['lnc']}",
                "up": _duration(snapshot["time"] - snapshot["started"]),
                "stops": "never" if idle is None else f"after {idle:g} s without a client",
                "native code": "where the processor matches" if snapshot["native"] else "never",
                "processes": len(snapshot["processes"]),
                "socket": paths.socket,
                "log": paths.log,
            }
        )
    if snapshot is None:
        context.exit(1)


@runtime.command("ls")
@click.option("-j", "as_json", is_flag=True, help="The JSON of neuron-ls.")
@json_option
def ls(as_json: bool) -> None:
    """List the devices and their processes, as neuron-ls does.

    \b
    Examples:
      neuron-env runtime ls
      neuron-env runtime ls -j | jq '.[0].neuroncore_ids'

    `-j` prints what `neuron-ls -j` would: a bare array. `--json` wraps it, with the instance's facts.
    """
    from neuron_runtime.tools.listing import (
        DEVICE_COLUMNS,
        PROCESS_COLUMNS,
        list_devices,
        listing_header,
        listing_rows,
    )

    out = output()
    machine, snapshot = _machine()
    processes = snapshot["processes"] if snapshot else []
    if as_json:
        out.json_text(list_devices(machine, processes))
    elif out.mode is Mode.JSON:
        out.json_document(
            {
                "simulated": True,
                "instance_type": machine.instance.name,
                "logical_neuroncore_config": machine.lnc,
                "devices": list_devices(machine, processes),
            }
        )
    else:
        for line in listing_header(machine):
            out.line(line)
        out.table(DEVICE_COLUMNS + PROCESS_COLUMNS, listing_rows(machine, processes), boxed=True)


@runtime.command()
@click.option("--once", is_flag=True, help="Print one view and end; so it is when stdout is no terminal.")
@click.option("--period", type=click.FloatRange(0.1), default=1.0, show_default=True, metavar="SECONDS")
def top(once: bool, period: float) -> None:
    """Watch cores, memory and models live; end with Ctrl-C.

    \b
    Examples:
      neuron-env runtime top
      neuron-env runtime top --once
    """
    out = output()
    before = _running()
    if once or not sys.stdout.isatty():
        time.sleep(min(period, 1.0))
        _print_top(before, _running())
        return
    try:
        while True:
            time.sleep(period)
            now = _running()
            click.clear()
            _print_top(before, now)
            before = now
    except KeyboardInterrupt:
        out.note("")


@runtime.command()
@click.option("--period", type=click.FloatRange(0.1), default=5.0, show_default=True, metavar="SECONDS")
@click.option("--count", type=click.IntRange(1), metavar="N", help="End after N reports.")
def monitor(period: float, count: int | None) -> None:
    """Print a JSON report each period, as neuron-monitor does.

    \b
    Examples:
      neuron-env runtime monitor --period 1
      neuron-env runtime monitor --count 1 | jq .neuron_runtime_data
    """
    from neuron_runtime.tools.hostinfo import HostSample
    from neuron_runtime.tools.monitoring import monitor_report

    before, host_before = _running(), HostSample.take()
    printed = 0
    while count is None or printed < count:
        time.sleep(period)
        now, host_now = _running(), HostSample.take()
        output().json_text(monitor_report(before, now, host_before, host_now))
        sys.stdout.flush()
        before, host_before = now, host_now
        printed += 1


def _environment(
    instance_type: str | None, lnc: str | None, idle_timeout: int | None, warm: int | None, native: str | None
) -> dict[str, str]:
    """Options as the variables that the daemon reads; an option wins over the environment."""
    given = {
        "NEURON_ENV_INSTANCE_TYPE": instance_type,
        "NEURON_LOGICAL_NC_CONFIG": lnc,
        "NEURON_ENV_RUNTIME_IDLE_TIMEOUT": idle_timeout,
        "NEURON_ENV_RUNTIME_WARM": warm,
        "NEURON_ENV_RUNTIME_NATIVE": native,
    }
    return {name: str(value) for name, value in given.items() if value is not None}


def _machine() -> tuple[Machine, dict[str, Any] | None]:
    """The running daemon's machine; without one, that which the settings would start."""
    from neuron_runtime.daemon.settings import DaemonSettings
    from neuron_runtime.protocol.paths import runtime_paths
    from neuron_runtime.tools.listing import machine_of
    from neuron_runtime.tools.snapshot import take_snapshot

    snapshot = take_snapshot(runtime_paths())
    return (machine_of(snapshot) if snapshot else DaemonSettings.from_environment().machine), snapshot


def _running() -> dict[str, Any]:
    from neuron_runtime.protocol.paths import runtime_paths
    from neuron_runtime.tools.snapshot import take_snapshot

    paths = runtime_paths()
    snapshot = take_snapshot(paths)
    if snapshot is None:
        raise NeuronEnvError(f"no runtime runs at {paths.socket}", hint="type `neuron-env runtime start`")
    return snapshot


def _status(paths: RuntimePaths, snapshot: dict[str, Any] | None) -> dict[str, Any]:
    return {"running": snapshot is not None, "socket": str(paths.socket), "log": str(paths.log), **(snapshot or {})}


def _print_top(before: dict[str, Any], now: dict[str, Any]) -> None:
    out = output()
    period = max(1e-9, now["time"] - before["time"])
    earlier = {process["pid"]: process["cores"] for process in before["processes"]}
    out.line(f"{now['instance_type']} (simulated), LNC {now['lnc']}, runtime {now['runtime_version']}", bold=True)
    rows: list[tuple[object, ...]] = []
    for process in now["processes"]:
        for core, counters in process["cores"].items():
            then = earlier.get(process["pid"], {}).get(core, {"executions": 0, "busy_ns": 0})
            rows.append(
                (
                    int(core),
                    process["pid"],
                    f"{min(100.0, (counters['busy_ns'] - then['busy_ns']) / 1e7 / period):.1f}%",
                    round((counters["executions"] - then["executions"]) / period, 1),
                    counters["submitted"] - counters["completed"],
                    counters["errors"],
                    size_text(counters["hbm_tensors"]),
                    size_text(counters["hbm_models"]),
                    process["command"][:60],
                )
            )
    out.table(("core", "pid", "busy", "exec/s", "queued", "errors", "tensors", "models", "command"), rows)
    models = [
        (
            model["name"],
            model["core"],
            model["executions"],
            f"{model['total_seconds'] / max(1, model['executions']) * 1e3:.3f} ms",
            f"{model['flops'] * model['executions'] / max(1e-9, model['total_seconds']) / 1e9:.2f}",
            "native" if model["native"] else "StableHLO",
        )
        for process in now["processes"]
        for model in process["models"]
    ]
    if models:
        out.line()
        out.table(("model", "core", "runs", "mean", "GFLOP/s", "loaded from"), models)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
