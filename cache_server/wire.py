"""The wire format of protocol buffers, as far as leaving fields out of a message takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class Part(NamedTuple):
    """One field of a message: number, wire type, the whole field, and the place of its content in the message."""

    number: int
    kind: int
    start: int
    content: int
    end: int


def parts_of(message: memoryview) -> Iterator[Part]:
    """The fields of a message in their order. Raises ValueError for what is no message."""
    at, end = 0, len(message)
    while at < end:
        start = at
        tag, at = varint(message, at)
        number, kind = tag >> 3, tag & 7
        content = at
        if kind == VARINT:
            _, at = varint(message, at)
        elif kind == BYTES:
            size, content = varint(message, at)
            at = content + size
        elif kind in (FIXED64, FIXED32):
            at += 8 if kind == FIXED64 else 4
        else:
            raise ValueError("a wire type that is not in use")
        if number == 0 or at > end:
            raise ValueError("a field that does not end")
        yield Part(number, kind, start, content, at)


def varint(data: memoryview, at: int) -> tuple[int, int]:
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
