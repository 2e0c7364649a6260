"""The kernel module `neuron`: loaded, and installed for this kernel."""

from __future__ import annotations

from neuron_runtime.host.host import Host
from neuron_runtime.host.missing import Facts, NotFoundHere

MODULE = "/sys/module/neuron"


def probe_driver(host: Host) -> Facts:
    """`version` of the loaded module, `installed_version` of the one on disk, which differs after an upgrade."""
    facts = Facts()
    if not host.exists(MODULE):
        loaded = f"the kernel module `neuron` is not loaded: {MODULE} does not exist"
        facts.lack("version", loaded)
    else:
        loaded = ""
        facts.take("version", lambda: host.text(f"{MODULE}/version"))
    facts.put("loaded", not loaded)
    installed = facts.take("installed_version", lambda: host.run(["modinfo", "-F", "version", "neuron"]).strip())
    if loaded and not installed:
        raise NotFoundHere(f"{loaded}; {facts.reasons['installed_version']}")
    return facts
