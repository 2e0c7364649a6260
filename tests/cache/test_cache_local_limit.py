"""A local tier with a limit: what is used least goes first, and requests do not look through it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from cache_kit import parts

from cache_server.local import LocalTier
from cache_server.local_limit import LocalLimit

SIZE = 1000


def used_long_ago(tier: LocalTier, name: str, seconds: float) -> None:
    path = tier.path(parts(name))
    then = time.time() - seconds
    os.utime(path.with_name(f"{path.name}.sha256"), (then, then))


def kept(tier: LocalTier, names: str) -> str:
    return "".join(name for name in names if tier.path(parts(name)).exists())


def test_least_recently_used_goes_first(tmp_path: Path) -> None:
    tier = LocalTier(tmp_path, max_bytes=4 * SIZE)
    for age, name in enumerate("abcd"):
        assert tier.put(parts(name), os.urandom(SIZE), 1.0)
        used_long_ago(tier, name, 1000 - age)
    assert tier.get(parts("a")) is not None  # the oldest, and now the one used last
    assert tier.put(parts("e"), os.urandom(SIZE), 1.0)
    assert kept(tier, "abcde") == "ade"
    assert tier.get(parts("b")) is None
    assert tier.quarantined == 0


def test_reading_for_another_purpose_is_no_use(tmp_path: Path) -> None:
    tier = LocalTier(tmp_path, max_bytes=2 * SIZE)
    for age, name in enumerate("ab"):
        tier.put(parts(name), os.urandom(SIZE), 1.0)
        used_long_ago(tier, name, 1000 - age)
    os.utime(tier.path(parts("a")))  # as a backup's reading does
    tier.put(parts("c"), os.urandom(SIZE), 1.0)
    assert kept(tier, "abc") == "c"


def test_neff_larger_than_the_limit_is_not_kept(tmp_path: Path) -> None:
    tier = LocalTier(tmp_path, max_bytes=SIZE)
    assert tier.put(parts("a"), os.urandom(SIZE), 1.0)
    assert not tier.put(parts("b"), os.urandom(SIZE + 1), 1.0)
    assert kept(tier, "ab") == "a"


def test_tier_that_grew_without_a_limit_shrinks_at_the_next_neff(tmp_path: Path) -> None:
    grown = LocalTier(tmp_path)
    for name in "abcdefgh":
        grown.put(parts(name), os.urandom(SIZE), 1.0)
        used_long_ago(grown, name, 1000)
    tier = LocalTier(tmp_path, max_bytes=3 * SIZE)
    tier.put(parts("i"), os.urandom(SIZE), 1.0)
    assert len(kept(tier, "abcdefghi")) <= 3
    assert tier.get(parts("i")) is not None


def test_other_programs_files_are_not_touched(tmp_path: Path) -> None:
    foreign = tmp_path / "ab" / "cd" / f"abcd{'0' * 28}.neff"
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(b"x" * 10 * SIZE)
    tier = LocalTier(tmp_path, max_bytes=SIZE)
    for name in "abc":
        tier.put(parts(name), os.urandom(SIZE), 1.0)
    assert foreign.read_bytes() == b"x" * 10 * SIZE


def test_what_was_set_aside_goes_before_anything_in_use(tmp_path: Path) -> None:
    tier = LocalTier(tmp_path, max_bytes=3 * SIZE)
    tier.put(parts("a"), os.urandom(SIZE), 1.0)
    tier.path(parts("a")).write_bytes(b"y" * SIZE)
    assert tier.get(parts("a")) is None
    assert len(list((tmp_path / "quarantine").iterdir())) == 1
    for name in "bcd":
        tier.put(parts(name), os.urandom(900), 1.0)
    assert list((tmp_path / "quarantine").iterdir()) == []
    assert kept(tier, "bcd") == "bcd"


@pytest.mark.parametrize("garbage", [b"", b"nonsense\n", b"-5\n", b"9" * 70_000])
def test_damaged_journal_is_measured_anew(tmp_path: Path, garbage: bytes) -> None:
    tier = LocalTier(tmp_path, max_bytes=2 * SIZE)
    tier.put(parts("a"), os.urandom(SIZE), 1.0)
    journal = tmp_path / "locks" / "added"
    journal.write_bytes(garbage)
    for name in "bcd":
        tier.put(parts(name), os.urandom(SIZE), 1.0)
    assert "d" in kept(tier, "abcd")
    assert sum(int(line) for line in journal.read_text().split()) <= 4 * SIZE


def test_requests_do_not_look_through_the_tier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tier = LocalTier(tmp_path, max_bytes=100 * SIZE)
    tier.put(parts("a"), os.urandom(SIZE), 1.0)

    def scan(self: LocalLimit) -> list[object]:
        raise AssertionError("this must not be measured")

    monkeypatch.setattr(LocalLimit, "_measure", scan)
    for name in "bcdef":
        tier.put(parts(name), os.urandom(SIZE), 1.0)
        assert tier.get(parts(name)) is not None
