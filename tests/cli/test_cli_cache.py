"""neuron-env cache: what people and programs see, and what it refuses to do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from cache_server import CacheSettings, KeyParts, NeffCache
from cache_server.leases import Lease, Vacant
from cache_server.leases.owner import Owner
from cli.units import duration, duration_text, size
from neuron_runtime.compiler.errors import CompileFailure, FailureKind

Invoke = Callable[..., Result]


def parts(ir: str, flags: tuple[str, ...] = ("-O2",)) -> KeyParts:
    return KeyParts.of(ir=ir.encode(), compiler="cc", compiler_version="2.0", flags=flags, target="trn2", lnc=2)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NeffCache:
    """A store with two NEFFs, which the environment names."""
    monkeypatch.setenv("NEURON_ENV_CACHE_URL", str(tmp_path / "shared"))
    monkeypatch.setenv("NEURON_ENV_CACHE_LOCAL_DIR", str(tmp_path / "local"))
    cache = NeffCache.open(settings=CacheSettings(str(tmp_path / "shared"), tmp_path / "local"))
    cache.get_or_compile(parts("small"), lambda: b"s" * 1000, label="decode")
    cache.get_or_compile(parts("large", ("-O1",)), lambda: b"l" * 5000, label="prefill")
    return cache


SMALL, LARGE = parts("small").key, parts("large", ("-O1",)).key


def document(result: Result) -> dict[str, Any]:
    assert result.stdout.count("\n") == 1, result.stdout
    value: dict[str, Any] = json.loads(result.stdout)
    assert next(iter(value)) == "schema_version"
    return value


def hold(cache: NeffCache, ir: str, owner: Owner, seconds: float = 15.0) -> Lease:
    assert cache.storage is not None
    storage = cache.storage
    name = storage.store.record_name(parts(ir).key)
    return Lease.claim(storage.records, name, Vacant(0, None), owner=owner, lease_seconds=seconds)


@pytest.fixture
def dead() -> Owner:
    """A process of this host that has ended."""
    here = Owner.here()
    return Owner(here.host, 2**22 + 1, here.user, f"{here.incarnation.rpartition('/')[0]}/1")


def test_status_shows_store_leases_and_sizes(invoke: Invoke, cache: NeffCache) -> None:
    result = invoke("cache", "status")
    assert result.exit_code == 0
    assert "2, 0 pinned" in result.stdout
    assert "2, 5.9 KiB, of all namespaces" in result.stdout
    assert "2 NEFFs, 5.9 KiB, 0 pinned" in invoke("cache", "status", "--details").stdout
    assert "on: of two who wrote one record, one was refused" in result.stdout
    found = document(invoke("cache", "status", "--json"))
    assert (found["leases"], found["entries"], found["neffs"], found["in_flight"]) == ("on", 2, None, [])
    assert document(invoke("cache", "status", "--details", "--json"))["neffs"] == {"count": 2, "bytes": 6000}
    assert found["local"]["count"] == 2


def test_ls_filters_and_sorts(invoke: Invoke, cache: NeffCache) -> None:
    assert invoke("cache", "ls", "-q", "--sort", "size").stdout.split() == [LARGE, SMALL]
    assert invoke("cache", "ls", "-q", "--sort", "size", "--limit", "1").stdout.split() == [LARGE]
    assert invoke("cache", "ls", "-q", "--label", "dec").stdout.split() == [SMALL]
    assert invoke("cache", "ls", "-q", "--larger-than", "4K").stdout.split() == [LARGE]
    assert invoke("cache", "ls", "-q", "--older-than", "1h").stdout == ""
    assert invoke("cache", "ls", "-q", "--kind", "failure").stdout == ""
    assert "prefill" in invoke("cache", "ls").stdout
    entries = document(invoke("cache", "ls", "--json"))["entries"]
    assert {entry["key"]: entry["bytes"] for entry in entries} == {SMALL: 1000, LARGE: 5000}


def test_ls_of_an_empty_place_says_so_and_makes_nothing(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("cache", "ls", "--cache-url", tmp_path / "nowhere")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "0 of 0 entries" in result.stderr
    assert not (tmp_path / "nowhere").exists()


def test_show_and_explain_take_the_beginning_of_a_key(invoke: Invoke, cache: NeffCache) -> None:
    result = invoke("cache", "show", SMALL[:8])
    assert result.exit_code == 0
    assert SMALL in result.stdout
    assert "settled, epoch 1" in result.stdout
    explained = invoke("cache", "explain", LARGE[:8]).stdout
    assert ["flags", "-O1"] in [line.split() for line in explained.splitlines()]
    found = document(invoke("cache", "show", SMALL, "--json"))
    assert found["manifest"]["label"] == "decode"
    assert found["lease"]["state"] == "settled"
    assert document(invoke("cache", "explain", LARGE, "--json"))["parts"]["flags"] == ["-O1"]


def test_show_prints_a_remembered_failure_without_letting_it_drive_the_terminal(
    invoke: Invoke, cache: NeffCache
) -> None:
    def broken() -> bytes:
        raise CompileFailure("no such op \x1b[31m", kind=FailureKind.COMPILER_ERROR)

    with pytest.raises(CompileFailure):
        cache.get_or_compile(parts("bad"), broken)
    result = invoke("cache", "show", parts("bad").key)
    assert "no such op \\x1b[31m" in result.stdout
    assert invoke("cache", "ls", "-q", "--kind", "failure").stdout.split() == [parts("bad").key]


def test_diff_says_why_two_compiles_differ(invoke: Invoke, cache: NeffCache) -> None:
    lines = invoke("cache", "diff", SMALL, LARGE).stdout.splitlines()
    assert lines[1:] == ["flag only in the first: -O2", "flag only in the second: -O1"]
    assert lines[0].startswith("graph (IR digest):")
    assert invoke("cache", "diff", SMALL, SMALL).stdout == "the keys are equal\n"
    assert len(document(invoke("cache", "diff", SMALL, LARGE, "--json"))["differences"]) == 3


@pytest.mark.parametrize(
    ("key", "message"),
    [("xyz", "not a key, or the beginning of one"), ("00000000", "there is no entry whose key begins with 00000000")],
)
@pytest.mark.parametrize("command", ["show", "explain", "pin", "rm"])
def test_a_key_that_is_none_is_an_error_with_a_hint(
    invoke: Invoke, cache: NeffCache, command: str, key: str, message: str
) -> None:
    result = invoke("cache", command, key)
    assert result.exit_code == 1
    assert message in result.stderr
    assert "neuron-env cache ls" in result.stderr


def test_locks_shows_who_compiles_and_whether_it_lives(invoke: Invoke, cache: NeffCache, dead: Owner) -> None:
    hold(cache, "dead", dead)
    hold(cache, "alive", Owner.here())
    hold(cache, "stranger", Owner("another-host", 7, "somebody"), seconds=0.2)
    table = invoke("cache", "locks").stdout
    assert f"pid {dead.pid} on {dead.host}" in table
    found = {it["key"]: it["owner_is"] for it in document(invoke("cache", "locks", "--json"))["locks"]}
    assert found == {parts("dead").key: "dead", parts("alive").key: "alive", parts("stranger").key: "unknown"}
    watched = {it["key"]: it["owner_is"] for it in document(invoke("cache", "locks", "--watch", "--json"))["locks"]}
    assert watched[parts("stranger").key] == "dead"


def test_takeover_frees_a_dead_owner_s_key_and_refuses_a_live_one(
    invoke: Invoke, cache: NeffCache, dead: Owner
) -> None:
    hold(cache, "dead", dead)
    hold(cache, "stranger", Owner("another-host", 7, "somebody"), seconds=0.2)
    hold(cache, "alive", Owner.here())
    assert document(invoke("cache", "takeover", parts("dead").key[:10], "--json"))["owner_was"] == "dead"
    assert invoke("cache", "takeover", parts("stranger").key).exit_code == 0
    refused = invoke("cache", "takeover", parts("alive").key)
    assert refused.exit_code == 1
    assert "is alive and holds" in refused.stderr
    assert "`--force`" in refused.stderr
    assert document(invoke("cache", "takeover", parts("alive").key, "--force", "--json"))["owner_was"] == "alive"
    assert document(invoke("cache", "locks", "--json"))["locks"] == []
    gone = invoke("cache", "takeover", parts("alive").key)
    assert "there is no held lease" in gone.stderr


@pytest.mark.parametrize("command", [("rm", SMALL), ("gc", "--max-bytes", "0")])
def test_nothing_is_destroyed_unless_told_to_where_nobody_can_be_asked(
    invoke: Invoke, cache: NeffCache, command: tuple[str, ...]
) -> None:
    result = invoke("cache", *command)
    assert result.exit_code == 1
    assert "no terminal to ask on" in result.stderr
    assert "`-y`" in result.stderr
    assert len(invoke("cache", "ls", "-q").stdout.split()) == 2


@pytest.mark.parametrize("command", [("rm", LARGE), ("gc", "--max-bytes", "0")])
def test_a_dry_run_shows_what_goes_and_does_nothing(
    invoke: Invoke, cache: NeffCache, tmp_path: Path, command: tuple[str, ...]
) -> None:
    before = sorted(tmp_path.rglob("*"))
    result = invoke("cache", *command, "--dry-run")
    assert result.exit_code == 0
    assert "would remove" in result.stdout
    found = document(invoke("cache", *command, "--dry-run", "--json"))
    assert found["dry_run"] is True
    assert found["freed_bytes"] > 5000
    assert sorted(tmp_path.rglob("*")) == before


def test_rm_reports_what_it_freed_and_the_next_request_compiles(
    invoke: Invoke, cache: NeffCache, tmp_path: Path
) -> None:
    result = invoke("cache", "rm", LARGE[:12], LARGE, "-y")
    assert result.exit_code == 0
    assert result.stdout.startswith("removed 1 entry, 1 blob; 5.5 KiB freed")
    assert invoke("cache", "ls", "-q").stdout.split() == [SMALL]
    fresh = NeffCache.open(settings=CacheSettings(str(tmp_path / "shared"), tmp_path / "other"))
    assert fresh.get_or_compile(parts("large", ("-O1",)), lambda: b"again").outcome == "compiled"


def test_pins_keep_entries_from_rm_and_gc(invoke: Invoke, cache: NeffCache) -> None:
    assert invoke("cache", "pin", SMALL[:8], LARGE).exit_code == 0
    refused = invoke("cache", "rm", SMALL, "-y")
    assert refused.exit_code == 1
    assert f"neuron-env cache unpin {SMALL[:16]}" in refused.stderr
    assert document(invoke("cache", "unpin", LARGE[:8], "--json")) == {
        "schema_version": 1,
        "unpinned": [LARGE],
        "changed": [LARGE],
    }
    found = document(invoke("cache", "gc", "--max-bytes", "0", "-y", "--json"))
    assert [step["name"] for step in found["removed"] if step["kind"] == "entry"] == [LARGE]
    assert any("no last uses" in note for note in found["notes"])
    assert document(invoke("cache", "status", "--json"))["pinned"] == 1


def test_gc_with_nothing_to_do_asks_nothing(invoke: Invoke, cache: NeffCache) -> None:
    result = invoke("cache", "gc")
    assert (result.exit_code, result.stdout) == (0, "nothing to remove\n")


def test_fsck_exits_1_while_a_problem_stays_and_0_once_it_is_mended(
    invoke: Invoke, cache: NeffCache, tmp_path: Path
) -> None:
    assert invoke("cache", "fsck").exit_code == 0
    for blob in (tmp_path / "shared").rglob("blobs/sha256/*/*"):
        blob.write_bytes(blob.read_bytes()[:-1] + b"?")
    found = invoke("cache", "fsck")
    assert found.exit_code == 1
    assert found.stdout.count("damaged blob") == 2
    assert "`neuron-env cache fsck --repair`" in found.stderr
    mended = invoke("cache", "fsck", "--repair", "--json")
    assert mended.exit_code == 0
    assert [it["repaired"] for it in document(mended)["problems"]] == [True, True]
    assert document(invoke("cache", "fsck", "--json"))["problems"] == []


def test_without_a_shared_cache_there_is_nothing_to_look_after(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("NEURON_ENV_CACHE_URL", "none")
    result = invoke("cache", "ls")
    assert result.exit_code == 1
    assert "no shared cache is set" in result.stderr


def test_namespaces_are_kept_apart(invoke: Invoke, cache: NeffCache) -> None:
    assert invoke("cache", "ls", "-q", "--namespace", "team").stdout == ""
    bad = invoke("cache", "ls", "--namespace", "../x")
    assert bad.exit_code == 1
    assert "not a cache namespace" in bad.stderr


def test_looking_at_a_store_imports_no_framework(tmp_path: Path) -> None:
    program = (
        "import sys; from cli.main import root; root.main(['cache', 'ls', '--json'], standalone_mode=False);"
        "print(sorted({'torch', 'jaxlib', 'numpy', 'fsspec', 'rich', 'asyncio'} & set(sys.modules)), file=sys.stderr)"
    )
    environment = {**os.environ, "NEURON_ENV_CACHE_URL": str(tmp_path), "NEURON_ENV_CACHE_LOCAL_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == "[]\n"


def test_sizes_and_durations_are_read_as_people_write_them() -> None:
    assert [size(text) for text in ("10", "10B", "1.5K", "1KiB", "2MB", "1 GiB")] == [
        10, 10, 1536, 1024, 2_000_000, 1 << 30,
    ]  # fmt: skip
    assert [duration(text) for text in ("90", "90s", "2m", "1.5h", "7d", "1w")] == [
        90.0, 90.0, 120.0, 5400.0, 604800.0, 604800.0,
    ]  # fmt: skip
    assert [duration_text(it) for it in (-1, 0.4, 12, 300, 11520, 10**6)] == [
        "0.00 s", "0.40 s", "12 s", "5.0 min", "3.2 h", "12 d",
    ]  # fmt: skip


@pytest.mark.parametrize("option", ["--larger-than", "--older-than"])
@pytest.mark.parametrize("value", ["", "ten", "-1", "1X", "1e9", "9" * 40])
def test_a_wrong_amount_is_a_usage_error(invoke: Invoke, cache: NeffCache, option: str, value: str) -> None:
    result = invoke("cache", "ls", option, value)
    assert result.exit_code == 2
    assert "write it like" in result.stderr
