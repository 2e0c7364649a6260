"""What a NEFF made here consists of, and how its header follows from the rest."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from .header import NeffHeader
from .manifest import NeffManifest

MANIFEST_MEMBER = "manifest.json"
STABLEHLO_MEMBER = "sg00/module.stablehlo"
NATIVE_MEMBER = "native/xla_cpu.bin"


def member_names(manifest: NeffManifest) -> tuple[str, ...]:
    """The members of a NEFF with this manifest, in archive order."""
    native = (NATIVE_MEMBER,) if manifest.native else ()
    return tuple(sorted((MANIFEST_MEMBER, STABLEHLO_MEMBER, *native)))


def content_uuid(manifest: NeffManifest, stablehlo: bytes) -> bytes:
    """The identity of what was compiled: 16 bytes, an RFC 4122 uuid of version 8.

    The native part stays out: serialised executables differ from run to run of the compiler, and are made
    again from the StableHLO wherever they do not fit.
    """
    digest = hashlib.sha256(replace(manifest, native=None).dumps())
    digest.update(hashlib.sha256(stablehlo).digest())
    raw = bytearray(digest.digest()[:16])
    raw[6] = raw[6] & 0x0F | 0x80
    raw[8] = raw[8] & 0x3F | 0x80
    return bytes(raw)


def header_for(manifest: NeffManifest, *, data_size: int, digest: bytes, uuid: bytes) -> NeffHeader:
    """The one header that fits this manifest and content."""
    return NeffHeader(
        data_size=data_size,
        hash=digest,
        uuid=uuid,
        name=manifest.name,
        neff_build_version=manifest.version,
        lnc_size=manifest.lnc,
    )
