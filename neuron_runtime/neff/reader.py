"""Read a NEFF: the vendor's as far as the published layout goes, and ours whole."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import fields

from .errors import NeffAccessError, NeffError
from .findings import Finding, require, shown
from .header import HEADER_SIZE, NeffHeader
from .layout import MANIFEST_MEMBER, NATIVE_MEMBER, STABLEHLO_MEMBER, header_for, member_names
from .limits import DEFAULT_LIMITS, NeffLimits
from .manifest import NeffManifest
from .source import NeffSource, Source, open_source
from .stream import ContentStream
from .tar import Member, walk

_OURS = (MANIFEST_MEMBER, STABLEHLO_MEMBER, NATIVE_MEMBER)


class Neff:
    """A NEFF whose header, digest and archive have been checked. Contents are unpacked when asked for.

    `members` are the files inside, in archive order. `manifest` is None for a NEFF that was not made here.
    """

    def __init__(
        self,
        source: Source,
        limits: NeffLimits,
        header: NeffHeader,
        members: tuple[Member, ...],
        manifest: NeffManifest | None,
        kept: dict[str, bytes],
    ) -> None:
        self.header = header
        self.members = members
        self.manifest = manifest
        self.size = source.size
        self._source = source
        self._limits = limits
        self._kept = kept

    @property
    def simulated(self) -> bool:
        """Whether this NEFF was made here and runs on the simulated device only."""
        return self.manifest is not None

    @property
    def unpacked_size(self) -> int:
        """The sum of the members' sizes, in bytes."""
        return sum(member.size for member in self.members)

    def read(self, name: str) -> bytes:
        """One member's content, held in memory whole. Raises NeffError where there is no such member."""
        if name in self._kept:
            return self._kept[name]
        for member, stream in self.contents():
            if member.name == name:
                return stream.take(member.size)
        raise NeffAccessError(
            shown(name),
            f"the NEFF has no member `{shown(name)}`",
            hint="list its members with `neuron-env neff ls FILE`",
        )

    def contents(self) -> Iterator[tuple[Member, ContentStream]]:
        """Unpack member by member; what the caller does not take from the stream is skipped."""
        stream = ContentStream(self._source.chunks(HEADER_SIZE), self._limits)
        for member in walk(stream, self._limits):
            yield member, stream

    @property
    def stablehlo(self) -> bytes:
        """The portable StableHLO. Raises NeffError for a NEFF that was not made here."""
        if self.manifest is None:
            raise NeffAccessError(
                STABLEHLO_MEMBER,
                "the NEFF was made for hardware: its engine programs cannot run on the simulated device",
                hint="compile the graph again with `neuron-env compile`",
            )
        return self.read(STABLEHLO_MEMBER)

    @property
    def native(self) -> bytes | None:
        """The native executable, or None where the NEFF has none.

        It is code: run it only from a trusted source. Raises NeffError where it is not the one described.
        """
        part = self.manifest and self.manifest.native
        if not part:
            return None
        data = self.read(NATIVE_MEMBER)
        require([native_check(part.sha256, data)])
        return data


def read_neff(source: NeffSource, limits: NeffLimits = DEFAULT_LIMITS) -> Neff:
    """Check and open a NEFF, given as bytes, as a path or as a seekable binary file that stays open.

    Everything is checked before it returns: the header, the digest, and the archive to its last byte; of a
    NEFF made here also the manifest and that the header fits it. Memory stays within a few megabytes beyond
    `source` itself, and time within what the file's size warrants. Raises NeffError, whose `field` names what
    is wrong; only an open file's own errors pass through.
    """
    opened = open_source(source)
    raw_header = opened.head(HEADER_SIZE)
    header = NeffHeader.unpack(raw_header)
    require(header.checks(opened.size))
    require([hash_check(header, opened)])
    members, kept = scan(opened, limits)
    manifest = None
    if MANIFEST_MEMBER in {member.name for member in members}:
        manifest = NeffManifest.loads(kept[MANIFEST_MEMBER])
        require(member_checks(manifest, members))
        require(header_checks(manifest, header, raw_header))
    return Neff(opened, limits, header, members, manifest, kept)


def scan(source: Source, limits: NeffLimits) -> tuple[tuple[Member, ...], dict[str, bytes]]:
    """Walk the whole archive once; keep the contents of our own members as far as the limits allow."""
    members: list[Member] = []
    kept: dict[str, bytes] = {}
    room = limits.kept_size
    stream = ContentStream(source.chunks(HEADER_SIZE), limits)
    for member in walk(stream, limits):
        members.append(member)
        if member.name == MANIFEST_MEMBER:
            if member.size > limits.manifest_size:
                raise NeffError(
                    MANIFEST_MEMBER,
                    f"the manifest is {member.size} bytes long, over the limit of {limits.manifest_size}",
                )
            kept[member.name] = stream.take(member.size)
        elif member.name in _OURS and member.size <= room:
            room -= member.size
            kept[member.name] = stream.take(member.size)
    return tuple(members), kept


def hash_check(header: NeffHeader, source: Source) -> Finding:
    """Whether the content has the digest in the header."""
    digest = hashlib.new(header.hash_algorithm, usedforsecurity=False)
    for chunk in source.chunks(HEADER_SIZE):
        digest.update(chunk)
    return Finding(
        "hash",
        digest.digest() == header.hash_digest,
        f"the {digest.name} of the content, {digest.hexdigest()}",
        header.hash_digest.hex(),
    )


def member_checks(manifest: NeffManifest, members: tuple[Member, ...]) -> Iterator[Finding]:
    """Whether the members beside the manifest are those that it calls for."""
    expected = [name for name in member_names(manifest) if name != MANIFEST_MEMBER]
    found = {member.name: member.size for member in members}
    for name in expected:
        size = manifest.native.size if manifest.native and name == NATIVE_MEMBER else None
        yield Finding(
            name,
            name in found and size in (None, found[name]),
            "present" if size is None else f"{size} bytes",
            f"{found[name]} bytes" if name in found else "no such member",
        )
    for name in sorted(found.keys() - {MANIFEST_MEMBER, *expected}):
        yield Finding(shown(name), False, "no such member", f"{found[name]} bytes")


def header_checks(manifest: NeffManifest, header: NeffHeader, raw: bytes) -> Iterator[Finding]:
    """Whether the header is byte for byte what our writer gives to this manifest, the uuid left aside."""
    expected = header_for(manifest, data_size=header.data_size, digest=header.hash, uuid=header.uuid)
    for field in fields(NeffHeader):
        wanted, found = getattr(expected, field.name), getattr(header, field.name)
        if wanted != found:
            yield Finding(field.name, False, _value(wanted), _value(found))
    exact = expected.pack() == raw
    yield Finding("header", exact, "what follows from the manifest", "fits" if exact else "differs")


def native_check(expected: str, native: bytes) -> Finding:
    found = hashlib.sha256(native).hexdigest()
    return Finding(NATIVE_MEMBER, found == expected, f"sha256 {expected}", f"sha256 {found}")


def _value(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else shown(str(value))
