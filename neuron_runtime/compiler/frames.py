"""Length-prefixed frames between a compile's caller and its worker: a JSON object, then bytes.

`magic (4) | JSON length (u32) | payload length (u64) | JSON | payload`, little-endian. Memory for a payload is taken as
it arrives, so a false length costs nothing.
"""

from __future__ import annotations

import json
import os
import select
import struct
import time
from collections.abc import Mapping
from typing import Any

_HEADER = struct.Struct("<4sIQ")
_MAGIC = b"NCF1"
_CHUNK = 1 << 20

MAX_JSON = 16 << 20
MAX_PAYLOAD = 8 << 30


class FrameError(Exception):
    """The other side broke the protocol, or went away in the middle of a frame."""


def send(fd: int, message: Mapping[str, Any], payload: bytes = b"", *, deadline: float | None = None) -> None:
    """Write one frame. `deadline` is on `time.monotonic` and needs a non-blocking `fd`.

    Raises TimeoutError at the deadline, BrokenPipeError when nobody reads, FrameError for a frame out of bounds.
    """
    text = json.dumps(message).encode()
    _check(len(text), len(payload))
    for part in (_HEADER.pack(_MAGIC, len(text), len(payload)) + text, payload):
        view = memoryview(part)
        while view:
            try:
                view = view[os.write(fd, view[:_CHUNK]) :]
            except BlockingIOError:
                _wait(fd, select.POLLOUT, deadline)


def receive(fd: int, *, deadline: float | None = None) -> tuple[dict[str, Any], bytes] | None:
    """Read one frame; None at a clean end. Raises TimeoutError at the deadline, and FrameError."""
    head = _read(fd, _HEADER.size, deadline, may_end=True)
    if head is None:
        return None
    magic, text_length, payload_length = _HEADER.unpack(head)
    if magic != _MAGIC:
        raise FrameError(f"a frame began with {magic!r}")
    _check(text_length, payload_length)
    text = _read(fd, text_length, deadline)
    payload = _read(fd, payload_length, deadline)
    try:
        message = json.loads(text or b"")
    except (ValueError, RecursionError) as error:
        raise FrameError(f"a frame held no JSON: {error}") from error
    if not isinstance(message, dict):
        raise FrameError("a frame held JSON that is no object")
    return message, payload or b""


def _check(text_length: int, payload_length: int) -> None:
    if text_length > MAX_JSON or payload_length > MAX_PAYLOAD:
        raise FrameError(f"a frame of {text_length} + {payload_length} bytes is larger than any may be")


def _read(fd: int, count: int, deadline: float | None, *, may_end: bool = False) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        try:
            piece = os.read(fd, min(_CHUNK, count - len(data)))
        except BlockingIOError:
            _wait(fd, select.POLLIN, deadline)
            continue
        if not piece:
            if may_end and not data:
                return None
            raise FrameError(f"the other side ended after {len(data)} of {count} bytes")
        data += piece
    return bytes(data)


def _wait(fd: int, event: int, deadline: float | None) -> None:
    poll = select.poll()
    poll.register(fd, event)
    left = None if deadline is None else deadline - time.monotonic()
    # Rounded up: poll counts in milliseconds, and zero of them would spin.
    if (left is not None and left <= 0) or not poll.poll(None if left is None else int(left * 1000) + 1):
        raise TimeoutError
