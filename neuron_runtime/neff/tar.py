"""A tar walker for hostile input.

The standard library's reader keeps every header it has met and reads extension headers of any size, so a
small file can make it fill the memory. This one knows the three dialects NEFF packagers write (ustar, GNU,
pax), holds one header at a time and refuses everything that is neither a regular file nor a directory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .errors import NeffError
from .findings import shown
from .limits import NeffLimits
from .names import Tree, clean_name
from .stream import ContentStream

BLOCK = 512

_REFUSED = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a character device",
    b"4": "a block device",
    b"6": "a FIFO",
    b"K": "a link with a long name",
    b"S": "a sparse file",
}
_FILES = (b"0", b"\0", b"7")
_PAX_RECORDS = 32


@dataclass(frozen=True, slots=True)
class Member:
    """One file in the archive: its path, relative and without dots, and its size in bytes."""

    name: str
    size: int


def walk(stream: ContentStream, limits: NeffLimits) -> Iterator[Member]:
    """Yield each file in archive order; its bytes are next in `stream`, and what is not taken is skipped.

    Raises NeffError: field `tar` for a broken structure, or the member's own name where one member is at fault.
    """
    tree = Tree(limits)
    extension: dict[str, bytes] = {}
    extensions = 0
    while (block := stream.take(BLOCK)).count(0) != BLOCK:
        _check_sum(block)
        size = _number(block[124:136], "size")
        kind = block[156:157]
        if kind in (b"x", b"g", b"L"):
            extensions += 1
            if extensions > limits.members or size > limits.extension_size:
                raise NeffError("tar", "the archive has more, or longer, extension headers than names need")
            _read_extension(kind, stream.take(size), extension)
            stream.skip(-size % BLOCK)
            continue
        raw_name = extension.pop("path", None) or _name(block)
        name = clean_name(raw_name, limits)
        if "size" in extension:
            size = _decimal(extension.pop("size"))
        # Before the `5` existed, a folder was a file whose name ends in a slash.
        if kind == b"5" or (kind == b"\0" and raw_name.endswith(b"/")):
            tree.add_folder(name, size)
        elif kind in _FILES:
            tree.add_file(name if not raw_name.endswith(b"/") else "", size)
            end = stream.position + size + -size % BLOCK
            yield Member(name, size)
            stream.skip(end - stream.position)
        else:
            what = _REFUSED.get(kind, f"of the unknown tar type {kind!r}")
            text = shown(name)
            raise NeffError(text, f"the member `{text}` is {what}, and a NEFF holds only files and folders")
    if extension:
        raise NeffError("tar", "an extension header is followed by no member")
    _check_end(stream, limits)


def _name(block: bytes) -> bytes:
    name = block[:100].split(b"\0", 1)[0]
    # Only POSIX ustar has a prefix there; GNU tar, whose magic ends in blanks, keeps times in these bytes.
    if block[257:263] == b"ustar\0" and (prefix := block[345:500].split(b"\0", 1)[0]):
        return prefix + b"/" + name
    return name


def _check_sum(block: bytes) -> None:
    # The field itself counts as eight blanks.
    if _number(block[148:156], "checksum") != sum(block) - sum(block[148:156]) + 8 * 0x20:
        raise NeffError("tar", "a tar header fails its checksum")


def _number(field: bytes, what: str) -> int:
    """Octal text, or GNU's base-256 for what octal cannot hold."""
    if field[0] & 0x80:
        value = int.from_bytes(field[1:], "big")
        # 0xff starts a negative number, and the bits between belong to numbers no file has.
        if field[0] != 0x80 or value >> 62:
            raise NeffError("tar", f"a tar header holds an impossible {what}")
        return value
    text = field.split(b"\0", 1)[0].strip(b" ")
    if text.strip(b"01234567"):
        raise NeffError("tar", f"a tar header's {what} is no octal number: {text!r}")
    return int(text or b"0", 8)


def _decimal(text: bytes) -> int:
    if text.isdigit() and len(text) < 20:
        return int(text)
    raise NeffError("tar", f"a pax header gives the size {text[:40]!r}")


def _read_extension(kind: bytes, content: bytes, extension: dict[str, bytes]) -> None:
    """Note the path and size that an extension header gives to the next member."""
    records = {b"path": content.rstrip(b"\0")} if kind == b"L" else dict(_pax_records(content))
    if any(key == b"linkpath" or key.startswith(b"GNU.sparse") for key in records):
        raise NeffError("tar", "a pax header describes a link or a sparse file")
    for key in ("path", "size"):
        value = records.get(key.encode())
        if value is None:
            continue
        if kind == b"g":
            raise NeffError("tar", f"a global pax header gives one {key} to all members")
        if key in extension:
            raise NeffError("tar", f"two extension headers give a {key} to one member")
        extension[key] = value


def _pax_records(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Split `LENGTH KEY=VALUE\\n` records, where LENGTH counts the whole record."""
    at = 0
    for _ in range(_PAX_RECORDS):
        if at == len(content):
            return
        digits, blank, _rest = content[at : at + 8].partition(b" ")
        length = int(digits) if blank and digits.isdigit() else 0
        key, equals, value = content[at + len(digits) + 1 : at + length].partition(b"=")
        if at + length > len(content) or not equals or not value.endswith(b"\n"):
            raise NeffError("tar", "a pax header is malformed")
        yield key, value[:-1]
        at += length
    if at != len(content):
        raise NeffError("tar", f"a pax header has more than {_PAX_RECORDS} records")


def _check_end(stream: ContentStream, limits: NeffLimits) -> None:
    """After the first zero block: a second one, zeros up to the packager's record size, and nothing else."""
    padding = 0
    for piece in stream.rest():
        padding += len(piece)
        if piece.count(0) != len(piece):
            raise NeffError("tar", "bytes follow the end of the archive")
        if padding > limits.padding_size:
            raise NeffError("tar", f"more than {limits.padding_size} bytes of padding follow the archive")
    if padding < BLOCK:
        raise NeffError("tar", "the archive lacks its end mark")
