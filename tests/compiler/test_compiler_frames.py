"""Frames between a caller and its worker: whole or an error, never a wait past the deadline."""

from __future__ import annotations

import os
import struct
import threading
import time

import pytest

from neuron_runtime.compiler import frames


@pytest.fixture
def pipe():
    reader, writer = os.pipe()
    ends = {"reader": reader, "writer": writer}
    yield ends
    for fd in ends.values():
        os.close(fd)


def feed(pipe, data: bytes) -> None:
    os.write(pipe["writer"], data)
    os.close(pipe.pop("writer"))


@pytest.mark.parametrize("size", [0, 1, 100, 3 << 20])
def test_round_trip_over_a_pipe_that_holds_less(pipe, size):
    payload = os.urandom(size)
    sender = threading.Thread(target=frames.send, args=(pipe["writer"], {"a": [1, None, "ü"]}, payload))
    sender.start()
    assert frames.receive(pipe["reader"]) == ({"a": [1, None, "ü"]}, payload)
    sender.join()


def test_clean_end_is_none(pipe):
    feed(pipe, b"")
    assert frames.receive(pipe["reader"]) is None


def head(magic=b"NCF1", text=2, payload=0) -> bytes:
    return struct.pack("<4sIQ", magic, text, payload)


@pytest.mark.parametrize(
    "data",
    [
        b"N",
        head(),
        head() + b"{",
        head(payload=5) + b"{}abc",
        head(magic=b"HTTP") + b"{}",
        head(text=0xFFFFFFFF),
        head(payload=1 << 63),
        head(payload=frames.MAX_PAYLOAD) + b"{}",
        head(text=2) + b"[]",
        head(text=2) + b"{]",
        head(text=4) + b"\xff\xff\xff\xff",
        head(text=100_000) + b"[" * 100_000,
    ],
)
def test_broken_frame_is_an_error_and_takes_no_memory(pipe, data):
    feeder = threading.Thread(target=feed, args=(pipe, data))
    feeder.start()
    with pytest.raises(frames.FrameError):
        frames.receive(pipe["reader"])
    feeder.join()


@pytest.mark.parametrize("begun", [b"", head(payload=10) + b"{}"])
def test_silence_ends_at_the_deadline(pipe, begun):
    os.write(pipe["writer"], begun)
    os.set_blocking(pipe["reader"], False)
    with pytest.raises(TimeoutError):
        frames.receive(pipe["reader"], deadline=time.monotonic() + 0.05)


def test_full_pipe_ends_at_the_deadline(pipe):
    os.set_blocking(pipe["writer"], False)
    with pytest.raises(TimeoutError):
        frames.send(pipe["writer"], {}, bytes(10 << 20), deadline=time.monotonic() + 0.05)


def test_frame_out_of_bounds_is_not_sent(pipe):
    with pytest.raises(frames.FrameError):
        frames.send(pipe["writer"], {"x": "y" * (frames.MAX_JSON + 1)})
    os.close(pipe.pop("writer"))
    assert os.read(pipe["reader"], 1) == b""
