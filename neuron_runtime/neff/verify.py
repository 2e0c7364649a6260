"""Every check of a NEFF, not only the first that fails."""

from __future__ import annotations

from collections.abc import Iterator

from .errors import NeffError
from .findings import Finding, shown
from .header import HEADER_SIZE, NeffHeader
from .layout import MANIFEST_MEMBER, NATIVE_MEMBER, STABLEHLO_MEMBER, content_uuid
from .limits import DEFAULT_LIMITS, NeffLimits
from .manifest import NeffManifest
from .reader import Neff, hash_check, header_checks, member_checks, native_check, scan
from .source import NeffSource, Source, open_source
from .tar import Member


def verify_neff(source: NeffSource, limits: NeffLimits = DEFAULT_LIMITS) -> list[Finding]:
    """Check all that `read_neff` checks, and of a NEFF made here also its uuid and its native part's digest.

    Each check is independent as far as the damage allows. Raises NeffAccessError where the bytes cannot be
    reached at all.
    """
    opened = open_source(source)
    raw_header = opened.head(HEADER_SIZE)
    try:
        header = NeffHeader.unpack(raw_header)
    except NeffError:
        return [Finding("header", False, f"at least {HEADER_SIZE} bytes", f"{len(raw_header)} bytes")]
    findings = list(header.checks(opened.size))
    findings.append(hash_check(header, opened))
    findings.extend(_content_checks(opened, limits, header, raw_header))
    return findings


def _content_checks(source: Source, limits: NeffLimits, header: NeffHeader, raw: bytes) -> Iterator[Finding]:
    try:
        members, kept = scan(source, limits)
    except NeffError as error:
        yield _failure(error, "a whole archive of plain files")
        return
    yield Finding("tar", True, "a whole archive of plain files", f"{len(members)} members")
    if MANIFEST_MEMBER not in kept:
        return
    try:
        manifest = NeffManifest.loads(kept[MANIFEST_MEMBER])
    except NeffError as error:
        yield _failure(error, "a valid manifest")
        return
    yield Finding(MANIFEST_MEMBER, True, "a valid manifest", manifest.producer)
    yield from member_checks(manifest, members)
    yield from header_checks(manifest, header, raw)
    yield from _digest_checks(Neff(source, limits, header, members, manifest, kept), members)


def _digest_checks(neff: Neff, members: tuple[Member, ...]) -> Iterator[Finding]:
    manifest, names = neff.manifest, {member.name for member in members}
    assert manifest is not None
    if STABLEHLO_MEMBER in names:
        expected = content_uuid(manifest, neff.read(STABLEHLO_MEMBER))
        yield Finding(
            "uuid",
            expected == neff.header.uuid,
            f"{expected.hex()}, from the content",
            neff.header.uuid.hex(),
        )
    if manifest.native and NATIVE_MEMBER in names:
        yield native_check(manifest.native.sha256, neff.read(NATIVE_MEMBER))


def _failure(error: NeffError, expected: str) -> Finding:
    return Finding(error.field, False, expected, shown(error.problem, 200))
