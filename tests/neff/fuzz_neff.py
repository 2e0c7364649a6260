"""Mutate NEFFs and read them: `python tests/neff/fuzz_neff.py --cases 120000 [--seed N] [--jobs N]`.

Each case is one file, damaged at one of five depths: its raw bytes, a header field, the packed content (digest made
right again), the archive (packed again), or the manifest (archived again). Only NeffError or success is allowed, within
a bounded time; what the reader accepts, everything else must cope with too, and what it refuses the verifier must
refuse. A failing case is printed as the numbers that make it again.
"""

from __future__ import annotations

import argparse
import collections
import functools
import gzip
import json
import multiprocessing
import random
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from neff_samples import archive_of, content_of, hardware, ours, raw_entry, seal, with_manifest

from neuron_runtime.neff import NeffError, NeffHeader, read_neff, verify_neff

CASE_SECONDS = 2.0

NUMBERS = (0, 1, 2, 3, 255, 511, 512, 513, 1023, 1024, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1)
TOKENS = (
    b"",
    b"\0" * 512,
    b"\xff" * 16,
    b"../",
    b"/",
    b"ustar\0",
    b"ustar  \0",
    b"\x1f\x8b\x08",
    b"manifest.json",
    b"sg00/module.stablehlo",
    b"77777777777",
    b"\x80" + b"\xff" * 11,
    b"[[[[",
    b'{"a":',
    b"1e999",
    "\u202e".encode(),
)
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2, 1 << 62, 1 << 63, 10**30, 0.5, 1e308, "", "x", "+sim", "\ud800", "\x1b[2J", "n" * 5000,
    [], [[]], [0], [[0, 0]], [-1], {}, {"name": "x"}, [1 << 62] * 3,
)  # fmt: skip


@functools.cache
def corpus() -> tuple[bytes, ...]:
    return (
        ours(),
        ours(native=False),
        hardware(),
        hardware(digest="sha256", padding=b"", packed=False),
        hardware({"neff.json": b"{}", "sg00/" + "n" * 120: b"1"}, form=2),
    )


def mutate(rng: random.Random, data: bytes) -> bytes:
    """One to four small damages of the kinds that bit rot, truncation and careful attackers make."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        size = len(changed)
        at = rng.randrange(size + 1)
        match rng.randrange(8):
            case 0 | 1 if at < size:
                changed[at] ^= 1 << rng.randrange(8)
            case 2 if at < size:
                changed[at] = rng.choice((0, 0x20, 0x2F, 0x30, 0x37, 0x7F, 0x80, 0xFF))
            case 3:
                del changed[at:]
            case 4:
                del changed[at : at + rng.choice((1, 8, 100, 512, 1024))]
            case 5:
                changed[at:at] = rng.choice(TOKENS)
            case 6:
                token = rng.choice(TOKENS)
                changed[at : at + len(token)] = token
            case 7:
                start = rng.randrange(size + 1)
                changed[at:at] = changed[start : start + rng.choice((16, 512, 1024))]
    return bytes(changed)


def fuzz_raw(rng: random.Random, neff: bytes) -> bytes:
    return mutate(rng, neff)


def fuzz_header(rng: random.Random, neff: bytes) -> bytes:
    field = rng.choice(fields(NeffHeader)).name
    value = getattr(NeffHeader.unpack(neff), field)
    if isinstance(value, int):
        width = 4 if field in ("num_tpb", "requested_tpb_count", "lnc_size") else 8
        choice = (value ^ 1 << rng.randrange(8 * width)) if rng.random() < 0.5 else rng.choice(NUMBERS)
        changed: Any = choice % (1 << 8 * width)
    elif isinstance(value, str):
        changed = "".join(chr(rng.randrange(32, 127)) for _ in range(rng.randrange(127)))
    else:
        changed = rng.randbytes(len(value))
    return seal(content_of(neff), NeffHeader.unpack(neff), **{field: changed})


def fuzz_packed(rng: random.Random, neff: bytes) -> bytes:
    return seal(mutate(rng, content_of(neff)), NeffHeader.unpack(neff))


def _archive(neff: bytes) -> bytes:
    content = content_of(neff)
    return archive_of(neff) if content[:2] == b"\x1f\x8b" else content


def fuzz_archive(rng: random.Random, neff: bytes) -> bytes:
    archive = bytearray(_archive(neff))
    if rng.random() < 0.3:
        kind = rng.choice((b"0", b"1", b"2", b"5", b"x", b"g", b"L", b"K", b"S", b"\0"))
        content = rng.choice((b"", b"12 path=a/b\n", b"11 size=99\n", b"9 a=\n", rng.randbytes(40), b"a/" * 300))
        size = rng.choice((len(content), 0, rng.choice(NUMBERS)))
        added = raw_entry(rng.choice((b"a", b"sg00", b"../a", b"manifest.json", b"")), size, kind, content)
        at = rng.randrange(0, len(archive) + 1, 512)
        archive[at:at] = added
    else:
        archive[:] = mutate(rng, bytes(archive))
    if rng.random() < 0.5:
        # Without this most damage would end at the header's checksum.
        for at in range(0, len(archive) - 511, 512):
            if archive[at + 257 : at + 262] == b"ustar":
                archive[at + 148 : at + 156] = b" " * 8
                archive[at + 148 : at + 156] = b"%06o\0 " % sum(archive[at : at + 512])
    packed = gzip.compress(bytes(archive), 1, mtime=0) if rng.random() < 0.5 else bytes(archive)
    return seal(packed, NeffHeader.unpack(neff))


def fuzz_manifest(rng: random.Random, neff: bytes) -> bytes:
    def change(parsed: dict[str, Any]) -> Any:
        if rng.random() < 0.3:
            return mutate(rng, json.dumps(parsed).encode())
        target: Any = parsed
        while True:
            keys: Any = list(target) if isinstance(target, dict) else range(len(target))
            key = rng.choice(keys)
            if not isinstance(target[key], dict | list) or not target[key] or rng.random() < 0.4:
                break
            target = target[key]
        if rng.random() < 0.2:
            del target[key]
        else:
            target[key] = rng.choice(VALUES)
        return parsed

    return with_manifest(change)


LEVELS: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    fuzz_raw,
    fuzz_header,
    fuzz_packed,
    fuzz_archive,
    fuzz_manifest,
)


def make_case(seed: int, number: int) -> bytes:
    rng = random.Random(f"{seed}/{number}")
    return LEVELS[number % len(LEVELS)](rng, rng.choice(corpus()))


def check(data: bytes) -> str:
    """The outcome: `ok`, or the kind of field that was refused. Raises whatever is not allowed."""
    start = time.monotonic()
    findings = verify_neff(data)
    failed = [finding.field for finding in findings if not finding.ok]
    assert all(finding.found.isprintable() and finding.field.isprintable() for finding in findings)
    error = _read_all(data)
    if error is None:
        outcome = "ok"
        assert set(failed) <= {"uuid"}, f"the reader passes over {failed}"
    else:
        outcome = error.field if error.field in ("data", "tar", "hash", "header", "data_size") else "other"
        assert error.message.isprintable(), "the message is not fit for a terminal"
        assert error.field in failed, f"verify passes over `{error.field}`: {failed}"
    assert time.monotonic() - start < CASE_SECONDS, "too slow"
    return outcome


def _read_all(data: bytes) -> NeffError | None:
    try:
        neff = read_neff(data)
        assert sum(len(neff.read(member.name)) for member in neff.members) == neff.unpacked_size
        if neff.manifest is not None:
            assert neff.stablehlo == neff.read("sg00/module.stablehlo")
            assert (neff.native is None) == (neff.manifest.native is None)
    except NeffError as error:
        return error
    return None


def run(seed: int, numbers: range) -> collections.Counter[str]:
    outcomes: collections.Counter[str] = collections.Counter()
    for number in numbers:
        data = make_case(seed, number)
        try:
            outcomes[check(data)] += 1
        except Exception:  # noqa: BLE001 - any exception at all is what this program looks for
            print(f"failed: --seed {seed}, case {number} ({len(data)} bytes)", file=sys.stderr)
            traceback.print_exc()
            outcomes["FAILED"] += 1
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    start = time.monotonic()
    shares = [range(job, options.cases, options.jobs) for job in range(options.jobs)]
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        parts = pool.map(functools.partial(run, options.seed), shares)
    total = sum(parts, collections.Counter[str]())
    print(f"{options.cases} cases in {time.monotonic() - start:.0f} s: {dict(total.most_common())}")
    return 1 if total["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
