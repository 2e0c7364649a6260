"""What counts of a graph that comes as MLIR bytecode: all but where on a disk its sources were."""

from __future__ import annotations

import re

MAGIC = b"ML\xefR"
_STRINGS = 0
_ALIGNED = 0x80  # in a section's first byte: alignment and padding stand before its content
_PADDING = b"\xcb"
# A path of a source file, and the file's name in it. Other paths may name what the graph is compiled with.
_SOURCE = re.compile(rb"[^\0]*/([^/\0]+\.(?:py|pyx|ipynb|c|cc|cpp|cxx|h|hpp|mlir))")


def essence_of_bytecode(data: bytes) -> list[bytes] | None:
    """The pieces of the module, its strings that are paths of source files cut to the files' names; None where none is.

    Locations are attributes like any other in this form, and only their strings can be told by looks. Lines and columns
    therefore still count; a moved virtual environment or checkout does not. None also for what cannot be read.
    """
    try:
        return _pieces(memoryview(data))
    except (ValueError, IndexError):
        return None


def _pieces(data: memoryview) -> list[bytes] | None:
    _, at = _number(data, len(MAGIC))
    at = bytes(data).index(b"\0", at) + 1  # the producer
    pieces = [bytes(data[:at])]
    found = False
    while at < len(data):
        first = data[at]
        size, at = _number(data, at + 1)
        if first & _ALIGNED:
            alignment, at = _number(data, at)
            padding = -at % alignment if alignment else 0
            if bytes(data[at : at + padding]) != _PADDING * padding:
                raise ValueError("a section that does not stand where it should")
            at += padding
        content = data[at : at + size]
        if len(content) != size:
            raise ValueError("a section that does not end")
        at += size
        pieces.append(b"section %d\0" % (first & ~_ALIGNED))
        if first & ~_ALIGNED == _STRINGS:
            cut = _strings(content)
            found = found or cut != [bytes(text) for text in _texts(content)]
            pieces.extend(text + b"\0" for text in cut)
        else:
            pieces.append(bytes(content))
    return pieces if found else None


def _texts(section: memoryview) -> list[bytes]:
    """The strings of the section, without the NUL that ends each. Their lengths stand in front, in reverse order."""
    count, at = _number(section, 0)
    sizes = []
    for _ in range(count):
        size, at = _number(section, at)
        sizes.append(size)
    texts = []
    for size in reversed(sizes):
        texts.append(bytes(section[at : at + size - 1]))
        at += size
    if at != len(section):
        raise ValueError("more than the strings")
    return texts


def _strings(section: memoryview) -> list[bytes]:
    return [match[1] if (match := _SOURCE.fullmatch(text)) else text for text in _texts(section)]


def _number(data: memoryview, at: int) -> tuple[int, int]:
    """A number of MLIR's: the trailing zero bits of its first byte tell how many bytes follow, 8 bits zero: eight."""
    first = data[at]
    if first == 0:
        return int.from_bytes(data[at + 1 : at + 9], "little"), at + 9
    more = (first & -first).bit_length() - 1
    value = int.from_bytes(data[at : at + 1 + more], "little") >> (more + 1)
    return value, at + 1 + more
