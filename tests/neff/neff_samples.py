"""NEFFs to read: ours, the vendor's as the published layout describes them, and hostile ones."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import struct
import tarfile
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from neuron_runtime.neff import HEADER_SIZE, NativePart, NeffHeader, NeffManifest, write_neff
from neuron_runtime.tensors import TensorSpec

STABLEHLO = b"module @main { func.func @main(%arg0: tensor<2x3xf32>) { return %arg0 } }\n" * 4
NATIVE = bytes(range(256)) * 2

HARDWARE_MEMBERS = {
    "neff.json": json.dumps({"version": 2, "nodes": [{"name": "sg00", "op": "subgraph"}]}).encode(),
    "sg00/def.json": json.dumps({"dma_queue": {}, "var": {"input0": {"size": 24}}}).encode(),
    "sg00/Activation.json": b'{"instructions": []}',
    "sg00/DVE.json": b'{"instructions": []}',
    "sg00/pe.bin": bytes(64),
    "sg00/weights.npy": b"\x93NUMPY" + bytes(250),
}


def manifest(**changes: Any) -> NeffManifest:
    """A valid manifest; `native` describes NATIVE unless changed."""
    values: dict[str, Any] = {
        "name": "block",
        "version": "0.1.0+sim",
        "target": "trn2",
        "lnc": 2,
        "opt_level": 1,
        "inputs": (TensorSpec("x", (2, 3), "float32"), TensorSpec("w", (3, 3), "bfloat16")),
        "outputs": (TensorSpec("y", (2, 3), "float32"),),
        "aliases": ((0, 0),),
        "flops": 36,
        "bytes_accessed": 66,
        "temp_bytes": 24,
        "native": NativePart.describe(
            NATIVE, format="xla_cpu/jaxlib-0.10.2", cpu_features=("avx2", "avx"), arch="x86_64"
        ),
    }
    return NeffManifest(**{**values, **changes})


def ours(*, native: bool = True) -> bytes:
    if native:
        return write_neff(manifest(), STABLEHLO, NATIVE)
    return write_neff(manifest(native=None), STABLEHLO)


def tar(members: Iterable[tuple[tarfile.TarInfo, bytes]], form: int = tarfile.GNU_FORMAT) -> bytes:
    """An archive written by the standard library, which this project's reader does not use."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for entry, content in members:
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def entry(name: str, content: bytes = b"", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content


def seal(content: bytes, like: NeffHeader | None = None, **fields: Any) -> bytes:
    """A header with the right size and digest before `content`; `fields` override it afterwards."""
    base = like or NeffHeader(
        data_size=0, hash=bytes(32), uuid=bytes(16), name="hw", neff_build_version="2.24.8799.0", lnc_size=2
    )
    base = replace(base, data_size=len(content), hash=hashlib.sha256(content).digest())
    return replace(base, **fields).pack() + content


def seal_tar(archive: bytes, like: NeffHeader | None = None, **fields: Any) -> bytes:
    return seal(gzip.compress(archive, 1, mtime=0), like, **fields)


def hardware(
    members: dict[str, bytes] | None = None,
    *,
    digest: str = "md5",
    padding: bytes = b"0",
    packed: bool = True,
    form: int = tarfile.GNU_FORMAT,
    **fields: Any,
) -> bytes:
    """A NEFF as the vendor's compiler packs one: foreign owner, times, folder entries, an MD5 or a SHA-256."""
    entries = [entry("sg00", type=tarfile.DIRTYPE, mtime=1_700_000_000)]
    for name, content in (members or HARDWARE_MEMBERS).items():
        entries.append(entry(name, content, uid=626188407, gid=600260513, uname="builder", mtime=1_700_000_000))
    content = tar(entries, form)
    if packed:
        content = gzip.compress(content, 6, mtime=0)
    found = hashlib.new(digest, content).digest()
    return seal(content, **{"hash": found + padding * (32 - len(found)), **fields})


def content_of(neff: bytes) -> bytes:
    return neff[HEADER_SIZE:]


def archive_of(neff: bytes) -> bytes:
    return gzip.decompress(content_of(neff))


def with_members(neff: bytes, change: Any) -> bytes:
    """One of our NEFFs, repacked with `change(dict of members)` applied, its header otherwise as it was."""
    with tarfile.open(fileobj=io.BytesIO(archive_of(neff))) as archive:
        members = {info.name: archive.extractfile(info).read() for info in archive.getmembers()}  # type: ignore[union-attr]
    change(members)
    return seal_tar(tar(entry(name, content) for name, content in members.items()), NeffHeader.unpack(neff))


def with_manifest(change: Any) -> bytes:
    """One of our NEFFs whose manifest is `change(parsed manifest)`, or those bytes if it returns bytes."""

    def apply(members: dict[str, bytes]) -> None:
        parsed = json.loads(members["manifest.json"])
        result = change(parsed)
        members["manifest.json"] = (
            result if isinstance(result, bytes) else json.dumps(parsed if result is None else result).encode()
        )

    return with_members(ours(), apply)


def raw_entry(name: bytes, size: int = 0, kind: bytes = b"0", content: bytes = b"") -> bytes:
    """A tar entry that the standard library would not write. Sizes that octal cannot hold go in base-256."""
    size_field = b"%011o\0" % size if size < 8**11 else b"\x80" + size.to_bytes(11, "big")
    block = bytearray(
        struct.pack(
            "100s8s8s8s12s12s8s1s100s8s247s", name, b"0000644\0", b"0000000\0", b"0000000\0", size_field,
            b"00000000000\0", b" " * 8, kind, b"", b"ustar\x0000", b"",
        )
    )  # fmt: skip
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block) + content + bytes(-len(content) % 512)


END = bytes(1024)
