"""Which instructions this host's processor has: native code runs only where its instructions exist."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# The x86 flags that change what a code generator may emit. The kernel lists many more (mitigations, power),
# which differ between hosts that run the same code, so they must not count.
_X86_PREFIXES = ("sse", "ssse", "avx", "amx", "fma", "bmi", "f16c", "sha", "vaes", "vpclmul", "gfni", "adx")
_X86_NAMES = frozenset(
    ("abm", "aes", "pni", "popcnt", "movbe", "pclmulqdq", "cx16", "rdrand", "rdseed", "xsave", "clwb")
)


@dataclass(frozen=True, slots=True)
class CpuIdentity:
    """A processor architecture (`x86_64`, `aarch64`) and its instruction sets as the kernel spells them."""

    arch: str
    features: tuple[str, ...]

    def supports(self, required: CpuIdentity) -> bool:
        """Can code that was compiled for `required` run here?"""
        return self.arch == required.arch and not self.missing(required.features)

    def missing(self, features: Iterable[str]) -> tuple[str, ...]:
        """The features of `features` that this processor lacks, sorted."""
        return tuple(sorted(set(features) - set(self.features)))


def host_cpu(cpuinfo: Path = Path("/proc/cpuinfo")) -> CpuIdentity:
    """The processor of this host; where `cpuinfo` cannot be read it has no features."""
    try:
        text = cpuinfo.read_text(errors="replace")
    except OSError:
        text = ""
    return parse_cpuinfo(text, platform.machine())


def parse_cpuinfo(text: str, arch: str) -> CpuIdentity:
    """Features common to every processor that `text` lists, so that a thread may migrate to any of them."""
    common: set[str] | None = None
    for line in text.splitlines():
        label, _, value = line.partition(":")
        if label.strip() in ("flags", "Features"):
            flags = set(value.split())
            common = flags if common is None else common & flags
    found = common or set()
    if arch in ("x86_64", "AMD64", "i686"):
        found = {f for f in found if f in _X86_NAMES or f.startswith(_X86_PREFIXES)}
    return CpuIdentity(arch, tuple(sorted(found)))
