"""A few hundred cases of `fuzz_neff.py`, chosen and shrunk by hypothesis, and that its cases reach every depth."""

from __future__ import annotations

import collections

from fuzz_neff import LEVELS, check, corpus, make_case
from hypothesis import given, settings
from hypothesis import strategies as st
from neff_samples import content_of, seal

from neuron_runtime.neff import HEADER_SIZE, NeffHeader


@settings(max_examples=250, deadline=20_000)
@given(st.integers(0, 1 << 32), st.integers(0, len(LEVELS) * 1000))
def test_mutated_neffs_are_refused_or_read(seed: int, number: int) -> None:
    check(make_case(seed, number))


@settings(max_examples=100, deadline=20_000)
@given(st.binary(max_size=2000))
def test_arbitrary_bytes_are_refused_or_read(data: bytes) -> None:
    check(data)
    check(corpus()[0][:HEADER_SIZE] + data)
    check(seal(data, NeffHeader.unpack(corpus()[0])))
    check(seal(b"\x1f\x8b\x08" + data, NeffHeader.unpack(corpus()[0])))


def test_cases_reach_every_depth() -> None:
    outcomes = collections.Counter(check(make_case(7, number)) for number in range(400))
    assert outcomes.keys() >= {"ok", "data", "tar", "hash", "other"}
    assert len({make_case(7, number) for number in range(400)}) > 300
    assert all(content_of(neff) for neff in corpus())
