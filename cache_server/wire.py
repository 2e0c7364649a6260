"""The wire format of protocol buffers, as far as leaving fields out of a message takes."""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

# Number and wire type, the beginning of the field, that of its content, and its end.
Part = tuple[int, int, int, int, int]


def parts_of(data: bytes, at: int, end: int) -> Iterator[Part]:
    """The fields of the message in `data[at:end]`, in their order. Raises ValueError for what is no message."""
    if end > len(data):
        raise ValueError("a message that does not end")
    # Written out, since graphs have a million of these, and nearly all numbers are of one byte.
    while at < end:
        start = at
        tag = data[at]
        at += 1
        if tag & 0x80:
            tag, at = varint(data, start)
        kind = tag & 7
        content = at
        if kind == BYTES:
            if at >= end:
                raise ValueError("a field that does not end")
            size = data[at]
            content = at + 1
            if size & 0x80:
                size, content = varint(data, at)
            at = content + size
        elif kind == VARINT:
            _, at = varint(data, at)
        elif kind == FIXED64:
            at += 8
        elif kind == FIXED32:
            at += 4
        else:
            raise ValueError("a wire type that is not in use")
        if tag < 8 or at > end:
            raise ValueError("a field that does not end")
        yield tag >> 3, kind, start, content, at


def pieces_without(data: bytes, at: int, end: int, leave_out: frozenset[int]) -> list[bytes]:
    """What is left of the message in `data[at:end]` without some fields: the stretches between them."""
    pieces = []
    begun = at
    for number, _, start, _, after in parts_of(data, at, end):
        if number in leave_out:
            if start > begun:
                pieces.append(data[begun:start])
            begun = after
    if end > begun:
        pieces.append(data[begun:end])
    return pieces


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at `at`, and the place behind it. Raises ValueError where there is none."""
    value = shift = 0
    while shift < 70:
        if at >= len(data):
            raise ValueError("a number that does not end")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number that is too long")
