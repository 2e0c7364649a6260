"""The 1024 bytes in front of every NEFF, as the vendor's documentation publishes them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from .errors import NeffError
from .findings import Finding, shown

HEADER_SIZE = 1024
HASH_SIZE = 32
UUID_SIZE = 16
BUILD_VERSION_SIZE = 128
NAME_SIZE = 256
TPB_PER_NODE_SIZE = 64

# Little-endian and without implicit padding: the published fields at natural C alignment leave no gap.
_LAYOUT = struct.Struct("<5Q128sI32s16s256sI64sQI468s")
# There is no magic number, so an absurd version is one of the few signs of a file that is no NEFF.
_MAX_MAJOR = 15
# 0 is what NEFFs from before logical NeuronCores hold there: the field lay in their padding.
_LNC_SIZES = (0, 1, 2)


@dataclass(frozen=True, slots=True)
class NeffHeader:
    """The published fields under their published names. Sizes in bytes; `hash`, `uuid` and padding are raw.

    Texts are what precedes the first NUL; bytes that cannot be printed are shown as escapes, so every text is
    safe to print and only a header of plain texts packs back to the bytes it came from.
    """

    data_size: int
    hash: bytes
    uuid: bytes
    name: str
    neff_build_version: str
    lnc_size: int
    pkg_version: int = 2
    header_size: int = HEADER_SIZE
    neff_version_major: int = 2
    neff_version_minor: int = 0
    num_tpb: int = 1
    requested_tpb_count: int = 1
    tpb_per_node: bytes = bytes(TPB_PER_NODE_SIZE)
    feature_bits: int = 0

    @classmethod
    def unpack(cls, raw: bytes) -> NeffHeader:
        """Split 1024 or more bytes into fields, without judging them. Raises NeffError where there are fewer."""
        if len(raw) < HEADER_SIZE:
            raise NeffError(
                "header",
                f"the file is {len(raw)} bytes long, and the header alone takes {HEADER_SIZE}",
                hint="the file is truncated or no NEFF at all; fetch or compile it again",
            )
        values = _LAYOUT.unpack_from(raw)
        return cls(
            pkg_version=values[0],
            header_size=values[1],
            data_size=values[2],
            neff_version_major=values[3],
            neff_version_minor=values[4],
            neff_build_version=_unpack_text(values[5]),
            num_tpb=values[6],
            hash=values[7],
            uuid=values[8],
            name=_unpack_text(values[9]),
            requested_tpb_count=values[10],
            tpb_per_node=values[11],
            feature_bits=values[12],
            lnc_size=values[13],
        )

    def pack(self) -> bytes:
        """The 1024 bytes. Raises NeffError naming the field that does not fit."""
        for field, size in (("hash", HASH_SIZE), ("uuid", UUID_SIZE), ("tpb_per_node", TPB_PER_NODE_SIZE)):
            value: bytes = getattr(self, field)
            if len(value) != size:
                raise NeffError(field, f"`{field}` takes {size} bytes, not {len(value)}")
        try:
            return _LAYOUT.pack(
                self.pkg_version,
                self.header_size,
                self.data_size,
                self.neff_version_major,
                self.neff_version_minor,
                _pack_text("neff_build_version", self.neff_build_version, BUILD_VERSION_SIZE),
                self.num_tpb,
                self.hash,
                self.uuid,
                _pack_text("name", self.name, NAME_SIZE),
                self.requested_tpb_count,
                self.tpb_per_node,
                self.feature_bits,
                self.lnc_size,
                b"",
            )
        except struct.error as error:
            raise NeffError("header", f"a number does not fit its header field: {error}") from error

    @property
    def uuid_text(self) -> str:
        """The uuid in its usual form, as in `561826fb-125f-4bb8-991c-29e085c8949a`."""
        digits = self.uuid.hex()
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    @property
    def hash_algorithm(self) -> str:
        """`md5` or `sha256`, judged by the form of the field.

        The documentation says that `pkg_version` selects between the two, not which value selects which. The
        form tells as much: an MD5 fills 16 of the 32 bytes, and producers fill the rest with NULs or with the
        digit 0. A SHA-256 ends like that once in 2**128 files.
        """
        return "md5" if self.hash[16:] in (bytes(16), b"0" * 16) else "sha256"

    @property
    def hash_digest(self) -> bytes:
        """The digest without its padding: 16 or 32 bytes."""
        return self.hash[:16] if self.hash_algorithm == "md5" else self.hash

    def checks(self, file_size: int) -> Iterator[Finding]:
        """What the header alone must satisfy for a file of `file_size` bytes, hash excluded."""
        yield Finding("header_size", self.header_size == HEADER_SIZE, str(HEADER_SIZE), _number(self.header_size))
        content = file_size - HEADER_SIZE
        yield Finding(
            "data_size",
            self.data_size == content and content > 0,
            f"{content} (the bytes after the header)" if content > 0 else "at least 1",
            _number(self.data_size),
        )
        yield Finding(
            "neff_version_major",
            self.neff_version_major <= _MAX_MAJOR,
            f"at most {_MAX_MAJOR}",
            _number(self.neff_version_major),
        )
        yield Finding("lnc_size", self.lnc_size in _LNC_SIZES, "0, 1 or 2", _number(self.lnc_size))


def _number(value: int) -> str:
    return str(value) if value < 1 << 48 else hex(value)


def _unpack_text(raw: bytes) -> str:
    text = raw.split(b"\0", 1)[0].decode("utf-8", "backslashreplace")
    return text if text.isprintable() else shown(text, limit=len(text))


def _pack_text(field: str, text: str, size: int) -> bytes:
    raw = text.encode("utf-8", "backslashreplace")
    if not text.isprintable():
        raise NeffError(field, f"`{field}` holds a character that cannot be printed: {shown(text)!r}")
    if len(raw) >= size:
        raise NeffError(
            field, f"`{field}` takes at most {size - 1} bytes of UTF-8, and `{shown(text)}` takes {len(raw)}"
        )
    return raw
