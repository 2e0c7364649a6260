"""System packages of Neuron: what dpkg or rpm has installed."""

from __future__ import annotations

import re

from neuron_runtime.host.host import Host
from neuron_runtime.host.missing import NotFoundHere

DPKG_STATUS = "/var/lib/dpkg/status"
_OURS = re.compile(r"aws-neuron|efa$|libfabric")


def read_system_packages(host: Host) -> dict[str, str]:
    """Versions by name, of Neuron and of EFA. Raises NotFoundHere where no package manager tells."""
    if host.exists(DPKG_STATUS):
        found = _dpkg(host.text(DPKG_STATUS))
    elif host.exists("/var/lib/rpm") or host.exists("/usr/lib/sysimage/rpm"):
        listing = host.run(["rpm", "-qa", "--qf", "%{NAME} %{VERSION}-%{RELEASE}\n"])
        found = _rpm(listing)
    else:
        raise NotFoundHere("neither dpkg nor rpm keeps packages here")
    return dict(sorted(found.items()))


def _dpkg(status: str) -> dict[str, str]:
    found = {}
    for paragraph in status.split("\n\n"):
        name = paragraph.partition("\n")[0].removeprefix("Package: ")
        if not _OURS.match(name) or not re.search(r"^Status: .*\binstalled$", paragraph, re.M):
            continue
        if version := re.search(r"^Version: (\S+)", paragraph, re.M):
            found[name] = version[1]
    return found


def _rpm(listing: str) -> dict[str, str]:
    rows = (line.split(" ", 1) for line in listing.splitlines() if " " in line)
    return {name: version for name, version in rows if _OURS.match(name)}
