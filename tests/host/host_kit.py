"""Makes the root directory of a machine: real files, and scripts that stand for its programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from neuron_runtime.host.host import Host
from neuron_runtime.host.proof_program import MARK

VENV = "/opt/aws_neuronx_venv_torch_neuronx_2_14_0"
UBUNTU_26 = {"ID": "ubuntu", "VERSION_ID": "26.04", "PRETTY_NAME": "Ubuntu 26.04 LTS"}
UBUNTU_24 = {"ID": "ubuntu", "VERSION_ID": "24.04", "PRETTY_NAME": "Ubuntu 24.04.3 LTS"}
AMAZON_2023 = {"ID": "amzn", "VERSION_ID": "2023", "PRETTY_NAME": "Amazon Linux 2023"}
GIB = 1 << 30


class HostTree:
    """One machine in the making. `host()` reads it; PATH, HOME and what `variables` adds are its environment."""

    def __init__(self, root: Path, *, prefix: str = VENV, python: str = "3.14.0") -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        self.prefix = prefix
        self.site = f"{prefix}/lib/python{'.'.join(python.split('.')[:2])}/site-packages"
        self.variables: dict[str, str] = {}
        self.file(f"{prefix}/pyvenv.cfg", f"home = /usr/bin\nversion = {python}\n")
        self._at(self.site).mkdir(parents=True, exist_ok=True)

    def host(self) -> Host:
        environ = {"PATH": f"{self.prefix}/bin:/usr/bin:/bin", "HOME": "/home/ubuntu", "VIRTUAL_ENV": self.prefix}
        return Host(root=self.root, environ=environ | self.variables)

    def file(self, name: str, text: str, mode: int = 0o644) -> None:
        path = self._at(name)
        for parent in reversed(path.relative_to(self.root).parents[:-1]):
            # Whatever the tests' umask is.
            (self.root / parent).mkdir(exist_ok=True)
            (self.root / parent).chmod(0o755)
        path.write_text(text)
        path.chmod(mode)

    def program(self, name: str, script: str) -> None:
        """A shell script."""
        self.file(name, f"#!/bin/sh\n{script}\n", 0o755)

    def prints(self, name: str, text: str) -> None:
        """A program that prints `text` whatever it is asked."""
        self.program(name, f"cat <<'END_OF_TEXT'\n{text}\nEND_OF_TEXT")

    def system(self, release: Mapping[str, str], *, glibc: str, instance_type: str, processors: int = 12) -> None:
        """Operating system, kernel, firmware, memory, mounts."""
        self.file("/etc/os-release", "".join(f'{name}="{value}"\n' for name, value in release.items()))
        self.file("/proc/sys/kernel/osrelease", "6.17.0-1007-aws\n")
        self.file("/proc/cpuinfo", "".join(f"processor\t: {number}\n\n" for number in range(processors)))
        self.file("/proc/meminfo", "MemTotal:       131072000 kB\nMemFree:        1000 kB\n")
        self.file("/proc/1/cgroup", "0::/init.scope\n")
        self.file("/usr/lib/x86_64-linux-gnu/libc.so.6", f"GNU C Library (GLIBC) stable release version {glibc}.\n")
        self.file("/sys/class/dmi/id/sys_vendor", "Amazon EC2\n")
        self.file("/sys/class/dmi/id/product_name", f"{instance_type}\n")
        self.mounts(("/", "ext4", "/dev/root", "rw"), ("/dev/shm", "tmpfs", "tmpfs", "rw,size=65536000k"))

    def mounts(self, *mounts: tuple[str, str, str, str]) -> None:
        """Point, filesystem, source, options."""
        lines = (
            f"{30 + number} 1 0:{number} / {point} rw,relatime shared:1 - {kind} {source} {options}\n"
            for number, (point, kind, source, options) in enumerate(mounts)
        )
        self.file("/proc/self/mountinfo", "".join(lines))

    def driver(self, version: str) -> None:
        """The kernel module, loaded and installed."""
        self.file("/sys/module/neuron/version", f"{version}\n")
        self.prints("/usr/bin/modinfo", version)

    def devices(self, instance_type: str, count: int, *, lnc: int, cores: int, memory: int = 96 * GIB) -> None:
        """Nodes, sysfs, and a neuron-ls that lists them. `cores` are a device's physical ones."""
        family, _, _ = instance_type.partition(".")
        for number in range(count):
            self.file(f"/dev/neuron{number}", "")
            folder = f"/sys/devices/virtual/neuron_device/neuron{number}"
            self.file(f"{folder}/core_count", f"{cores}\n")
            names = {"trn1": "Trainium1", "trn2": "Trainium2", "trn3": "Trainium3"}
            self.file(f"{folder}/info/architecture/device_name", f"{names[family]}\n")
            self.file(f"{folder}/info/architecture/instance_type", f"{family.title()}\n")
        self.prints(
            "/opt/aws/neuron/bin/neuron-ls",
            json.dumps([self._listed(number, lnc, cores // lnc, memory) for number in range(count)]),
        )

    def _listed(self, number: int, lnc: int, cores: int, memory: int) -> dict[str, Any]:
        return {
            "neuron_device": number,
            "bdf": f"{0xCC - number:02x}:00.0",
            "connected_to": [],
            "nc_count": cores,
            "logical_neuroncore_config": lnc,
            "memory_size": memory,
            "neuroncore_ids": list(range(number * cores, (number + 1) * cores)),
            "neuron_processes": [],
        }

    def dpkg(self, packages: Mapping[str, str]) -> None:
        """What apt has installed, among others."""
        paragraphs = [
            f"Package: {name}\nStatus: install ok installed\nMaintainer: somebody\nVersion: {version}\n"
            for name, version in {"base-files": "13", **packages}.items()
        ]
        self.file("/var/lib/dpkg/status", "\n".join(paragraphs))
        if "aws-neuronx-runtime-lib" in packages:
            self.file("/opt/aws/neuron/lib/libnrt.so.1", "")

    def package(
        self,
        name: str,
        version: str,
        *,
        site: str | None = None,
        tags: Sequence[str] = (),
        direct_url: object = None,
        requires: Sequence[str] = (),
    ) -> None:
        """An installed Python package: its metadata."""
        folder = f"{site or self.site}/{name.replace('-', '_')}-{version}.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        self.file(f"{folder}/METADATA", metadata + "".join(f"Requires-Dist: {item}\n" for item in requires))
        self.file(f"{folder}/INSTALLER", "pip\n")
        self.file(f"{folder}/WHEEL", "Wheel-Version: 1.0\n" + "".join(f"Tag: {tag}\n" for tag in tags))
        if direct_url is not None:
            self.file(f"{folder}/direct_url.json", json.dumps(direct_url))

    def proof(self, **answer: object) -> None:
        """The environment's interpreter, which answers the proof so."""
        self.prints(f"{self.prefix}/bin/python", MARK + json.dumps(answer))

    def _at(self, name: str) -> Path:
        return self.root / name.lstrip("/")
