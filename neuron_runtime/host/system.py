"""Operating system, kernel, processor, memory, shared memory."""

from __future__ import annotations

import os
import platform
import re
import shlex

from neuron_runtime.host.host import Host
from neuron_runtime.host.missing import Facts, NotFoundHere
from neuron_runtime.host.mounts import mount_of, read_mounts

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - looked at, not written to


def probe_system(host: Host) -> Facts:
    """The machine under everything else."""
    facts = Facts()
    release = facts.take("os_release", lambda: _os_release(host)) or {}
    del facts.values["os_release"]
    facts.put("os", release.get("PRETTY_NAME"))
    facts.put("os_id", release.get("ID"))
    facts.put("os_version", release.get("VERSION_ID"))
    facts.take("kernel", lambda: host.text("/proc/sys/kernel/osrelease"))
    facts.take("architecture", lambda: _architecture(host))
    facts.take("glibc", lambda: _glibc(host))
    facts.take("instance_type", lambda: _instance_type(host))
    facts.take("processors", lambda: _processors(host))
    facts.take("memory_bytes", lambda: _memory(host))
    facts.take("shared_memory_bytes", lambda: _shared_memory(host))
    return facts


def _os_release(host: Host) -> dict[str, str]:
    try:
        text = host.text("/etc/os-release")
    except NotFoundHere:
        text = host.text("/usr/lib/os-release")
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {name: "".join(shlex.split(value)[:1]) for name, _, value in pairs}


def _architecture(host: Host) -> str:
    if host.live:
        return platform.machine()
    for name, architecture in (("x86_64", "x86_64"), ("aarch64", "aarch64")):
        for folder in ("/usr/lib", "/lib"):
            if host.exists(f"{folder}/{name}-linux-gnu") or host.exists(
                f"{folder}64/ld-linux-{name.replace('_', '-')}.so.2"
            ):
                return architecture
    raise NotFoundHere("no C library of a known architecture in /usr/lib")


def _glibc(host: Host) -> str:
    if host.live:
        name, version = platform.libc_ver()
        if name == "glibc":
            return version
        raise NotFoundHere("this Python does not use glibc")
    for folder in (
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/lib/x86_64-linux-gnu",
        "/usr/lib64",
        "/lib64",
    ):
        try:
            link = host.path(folder) / "libc.so.6"
            name = link.readlink().name if link.is_symlink() else ""
            if found := re.fullmatch(r"libc-(\d+\.\d+)\.so", name):
                return found[1]
            data = link.read_bytes()
        except OSError:
            continue
        if match := re.search(rb"GNU C Library .{0,60}?release version (\d+\.\d+)", data):
            return match[1].decode()
    raise NotFoundHere("no libc.so.6 that names its version")


def _instance_type(host: Host) -> str:
    """On EC2's Nitro machines the firmware knows."""
    vendor = host.text("/sys/class/dmi/id/sys_vendor")
    if vendor != "Amazon EC2":
        raise NotFoundHere(f"not an EC2 machine, says its firmware: {vendor}")
    return host.text("/sys/class/dmi/id/product_name")


def _processors(host: Host) -> int:
    if host.live:
        return len(os.sched_getaffinity(0))
    count = len(re.findall(r"^processor\s*:", host.text("/proc/cpuinfo"), re.M))
    if not count:
        raise NotFoundHere("/proc/cpuinfo lists none")
    return count


def _memory(host: Host) -> int:
    found = re.search(r"^MemTotal:\s+(\d+) kB", host.text("/proc/meminfo"), re.M)
    if not found:
        raise NotFoundHere("/proc/meminfo has no MemTotal")
    return int(found[1]) * 1024


def _shared_memory(host: Host) -> int:
    mount = mount_of(read_mounts(host), _SHARED_MEMORY)
    if mount is None or mount.point != _SHARED_MEMORY:
        raise NotFoundHere(f"{_SHARED_MEMORY} is not a mount")
    for option in mount.options:
        if found := re.fullmatch(r"size=(\d+)([kmg]?)", option):
            return int(found[1]) * {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}[found[2]]
    if not host.live:
        raise NotFoundHere(f"{_SHARED_MEMORY} is mounted without a size")
    size = os.statvfs(_SHARED_MEMORY)
    return size.f_blocks * size.f_frsize
