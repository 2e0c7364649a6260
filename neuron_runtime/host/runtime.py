"""The Neuron runtime: the library, the tools, the system packages, and the simulated runtime where one runs."""

from __future__ import annotations

import re
from typing import Any

from neuron_runtime.host.host import Host
from neuron_runtime.host.installed import read_system_packages
from neuron_runtime.host.missing import Facts, NotFoundHere

LIBRARIES = "/opt/aws/neuron/lib"


def probe_runtime(host: Host) -> Facts:
    """`packages` of the system, `library` (libnrt), `tools` and `compiler` by path, `simulated` of our own daemon."""
    facts = Facts()
    facts.take("packages", lambda: read_system_packages(host))
    facts.take("library", lambda: _library(host))
    facts.take("tools", lambda: host.which("neuron-ls"))
    facts.take("compiler", lambda: host.which("neuronx-cc"))
    facts.take("simulated", lambda: _simulated(host))
    if all(value is None for value in facts.values.values()):
        raise NotFoundHere("; ".join(facts.reasons.values()))
    return facts


def _library(host: Host) -> str:
    """The first libnrt that a program would load: LD_LIBRARY_PATH before the vendor's directory."""
    searched = [folder for folder in host.environ.get("LD_LIBRARY_PATH", "").split(":") if folder.startswith("/")]
    for folder in (*searched, LIBRARIES):
        try:
            names = [name for name in host.names(folder) if re.fullmatch(r"libnrt\.so(\.\d+)*", name)]
        except NotFoundHere:
            continue
        if names:
            return f"{folder}/{names[0]}"
    raise NotFoundHere(f"there is no libnrt.so in {LIBRARIES} or on LD_LIBRARY_PATH")


def _simulated(host: Host) -> dict[str, Any]:
    if not host.live:
        raise NotFoundHere("the simulated runtime is looked for on a live host alone")
    from neuron_runtime.protocol.paths import runtime_paths
    from neuron_runtime.tools.snapshot import take_snapshot

    paths = runtime_paths(host.environ)
    # Connecting imports much; most hosts have no such daemon.
    if not paths.socket.exists():
        raise NotFoundHere(f"no simulated runtime runs at {paths.socket}")
    snapshot = take_snapshot(paths)
    if snapshot is None:
        raise NotFoundHere(f"no simulated runtime runs at {paths.socket}")
    return {
        "version": snapshot["runtime_version"],
        "instance_type": snapshot["instance_type"],
        "lnc": snapshot["lnc"],
        "processes": len(snapshot["processes"]),
        "socket": str(paths.socket),
    }
