"""Write a NEFF."""

from __future__ import annotations

import hashlib
import zlib

from .errors import NeffError
from .layout import MANIFEST_MEMBER, NATIVE_MEMBER, STABLEHLO_MEMBER, content_uuid, header_for, member_names
from .limits import DEFAULT_LIMITS
from .manifest import NeffManifest

# The fastest level that compresses. StableHLO shrinks about as far as at the default level; the time is spent
# on every compile and, inflating, on every load.
_LEVEL = 1
_BLOCK = 512


def write_neff(manifest: NeffManifest, stablehlo: bytes, native: bytes | None = None) -> bytes:
    """Pack one NEFF: header, then a gzip tar of the manifest, the StableHLO and the native executable, if
    any.

    Equal arguments give equal bytes wherever the same zlib is at work; another build of zlib may compress to
    other bytes of the same content. The uuid in the header depends on neither that nor the native part.

    Raises NeffError where the manifest does not describe `native`, or a text does not fit the header.
    """
    part = manifest.native
    if (part is None) != (native is None):
        raise NeffError(
            "manifest.native",
            "the manifest describes a native part and none is given"
            if part
            else "a native part is given that the manifest does not describe",
            hint="set `native=NativePart.describe(...)` in the manifest exactly when passing `native`",
        )
    if part and native is not None and (len(native), _sha256(native)) != (part.size, part.sha256):
        raise NeffError("manifest.native", "the manifest describes another native part than the one given")
    described = manifest.dumps()
    if len(described) > DEFAULT_LIMITS.manifest_size:
        raise NeffError(MANIFEST_MEMBER, f"the manifest is {len(described)} bytes long, more than any reader takes")
    contents = {MANIFEST_MEMBER: described, STABLEHLO_MEMBER: stablehlo, NATIVE_MEMBER: native or b""}
    data = _pack([(name, contents[name]) for name in member_names(manifest)])
    header = header_for(
        manifest,
        data_size=len(data),
        digest=hashlib.sha256(data).digest(),
        uuid=content_uuid(manifest, stablehlo),
    )
    return header.pack() + data


def _pack(members: list[tuple[str, bytes]]) -> bytes:
    from tarfile import USTAR_FORMAT, TarInfo

    # zlib's own gzip header carries neither time nor name.
    packer = zlib.compressobj(_LEVEL, wbits=31)
    packed = []
    for name, content in members:
        entry = TarInfo(name)
        entry.size = len(content)
        for piece in (entry.tobuf(USTAR_FORMAT), content, bytes(-len(content) % _BLOCK)):
            packed.append(packer.compress(piece))
    packed.append(packer.compress(bytes(2 * _BLOCK)))
    packed.append(packer.flush())
    return b"".join(packed)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
