"""The members of a tar archive that somebody else made, each judged by itself.

The standard library's reader extracts links and devices, and takes extension headers of any size. This one reads the
three dialects in use (ustar, GNU, pax), one header at a time; what is no plain file with a plain name is refused and
passed over. Where the structure itself is broken, the rest of the archive is refused as one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from cache_server.transfer.limits import Limits

_BLOCK = 512
_FILES = (b"0", b"\0", b"7")
_FOLDER = b"5"
_EXTENSIONS = (b"x", b"g", b"L", b"K")
_REFUSED = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a character device",
    b"4": "a block device",
    b"6": "a FIFO",
    b"S": "a sparse file",
}
REST = "(the rest of the archive)"


@dataclass(frozen=True, slots=True)
class TarMember:
    """A file and where its `size` bytes begin, or what was refused and why."""

    name: str
    offset: int = 0
    size: int = 0
    modified_at: float = 0.0
    refused: str = ""


class _BrokenError(ValueError):
    """Nothing after this point can be found any more."""


def walk_tar(file: IO[bytes], limits: Limits) -> Iterator[TarMember]:
    """Yields every file, and everything refused; folders are passed over. Raises OSError only."""
    end = file.seek(0, os.SEEK_END)
    position, count, total = 0, 0, 0
    extension: dict[str, bytes] = {}
    try:
        while True:
            block = _take(file, position, _BLOCK, end)
            if block.count(0) == _BLOCK:
                return
            _check_sum(block)
            size, kind = _number(block[124:136]), block[156:157]
            position += _BLOCK
            if kind in _EXTENSIONS:
                if size > limits.extension_size:
                    raise _BrokenError(f"an extension header at byte {position} is {size} bytes long")
                _read_extension(kind, _take(file, position, size, end), extension)
            else:
                count += 1
                if count > limits.members:
                    raise _BrokenError(f"more than {limits.members} members")
                raw = extension.pop("path", None) or _name(block)
                if "size" in extension:
                    size = _decimal(extension.pop("size"))
                total += size
                refused = _objection(raw, kind, size, total, extension, limits)
                extension.clear()
                if position + size > end:
                    raise _BrokenError(f"it ends in the middle of {_shown(raw)}")
                folder = kind == _FOLDER or (kind == b"\0" and raw.endswith(b"/"))
                if refused or not folder:
                    yield TarMember(_shown(raw), position, size, float(_number(block[136:148])), refused)
            position += size + -size % _BLOCK
    except _BrokenError as error:
        yield TarMember(REST, refused=str(error))


def _objection(raw: bytes, kind: bytes, size: int, total: int, extension: dict[str, bytes], limits: Limits) -> str:
    if kind in _REFUSED or "sparse" in extension:
        return _REFUSED.get(kind, "a sparse file")
    if kind not in _FILES and kind != _FOLDER:
        return f"of the unknown tar type {kind!r}"
    if size > limits.member_size:
        return f"longer than {limits.member_size} bytes"
    if total > limits.total_size:
        return f"the archive unpacks to more than {limits.total_size} bytes"
    if len(raw) > limits.name_length:
        return f"its name is longer than {limits.name_length} bytes"
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        return "its name is not UTF-8"
    if not name.isprintable() or "\\" in name:
        return "its name holds a character that no name may hold"
    if name.startswith("/"):
        return "its name is absolute"
    parts = _plain(name).split("/")
    if len(parts) > limits.name_depth:
        return f"it lies deeper than {limits.name_depth} folders"
    if kind != _FOLDER and any(part in ("", ".", "..") for part in parts):
        return "its name is not a plain relative path"
    return ""


def _shown(raw: bytes) -> str:
    name = _plain(raw.decode("utf-8", "backslashreplace"))
    return name if name.isprintable() else name.encode("unicode_escape").decode()[:1000]


def _plain(name: str) -> str:
    while name.startswith("./"):
        name = name[2:]
    return name.rstrip("/")


def _take(file: IO[bytes], position: int, size: int, end: int) -> bytes:
    if position + size > end:
        raise _BrokenError("it lacks its end mark")
    file.seek(position)
    return file.read(size)


def _name(block: bytes) -> bytes:
    name = block[:100].split(b"\0", 1)[0]
    # Only POSIX ustar has a prefix there; GNU tar, whose magic ends in blanks, keeps times in these bytes.
    if block[257:263] == b"ustar\0" and (prefix := block[345:500].split(b"\0", 1)[0]):
        return prefix + b"/" + name
    return name


def _check_sum(block: bytes) -> None:
    # The field itself counts as eight blanks.
    if _number(block[148:156]) != sum(block) - sum(block[148:156]) + 8 * 0x20:
        raise _BrokenError("a header fails its checksum")


def _number(field: bytes) -> int:
    """Octal text, or GNU's base-256 for what octal cannot hold."""
    if field[0] & 0x80:
        value = int.from_bytes(field[1:], "big")
        if field[0] != 0x80 or value >> 62:
            raise _BrokenError("a header holds an impossible number")
        return value
    text = field.split(b"\0", 1)[0].strip(b" ")
    if text.strip(b"01234567"):
        raise _BrokenError("a header holds a number that is not octal")
    return int(text or b"0", 8)


def _decimal(text: bytes) -> int:
    if text.isdigit() and len(text) < 19:
        return int(text)
    raise _BrokenError("a pax header gives a size that is no number")


def _read_extension(kind: bytes, content: bytes, extension: dict[str, bytes]) -> None:
    """Notes what an extension header says of the next member."""
    if kind == b"L":
        extension["path"] = content.rstrip(b"\0")
    if kind != b"x":
        return  # a long name of a link, which is refused anyway; or words for all members, which nothing here needs
    at = 0
    while at < len(content):
        digits, blank, _ = content[at : at + 8].partition(b" ")
        length = int(digits) if blank and digits.isdigit() else 0
        key, equals, value = content[at + len(digits) + 1 : at + length].partition(b"=")
        if not length or at + length > len(content) or not equals or not value.endswith(b"\n"):
            raise _BrokenError("a pax header is malformed")
        if key in (b"path", b"size"):
            extension[key.decode()] = value[:-1]
        if key.startswith(b"GNU.sparse"):
            extension["sparse"] = b"1"
        at += length
