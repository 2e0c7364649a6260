"""neuron-env cache export, import, prefetch, push and jobs: what people and programs see."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from cache_server import CacheSettings, KeyParts, NeffCache

Invoke = Callable[..., Result]


def parts(ir: str) -> KeyParts:
    return KeyParts.of(ir=ir.encode(), compiler="neuronx-cc", compiler_version="2.0", flags=[], target="trn2", lnc=2)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NeffCache:
    """A store with two NEFFs of the job `train`, which the environment names; the local tier is another host's."""
    monkeypatch.setenv("NEURON_ENV_CACHE_URL", str(tmp_path / "shared"))
    monkeypatch.setenv("NEURON_ENV_CACHE_LOCAL_DIR", str(tmp_path / "local-b"))
    monkeypatch.delenv("NEURON_ENV_JOB", raising=False)
    cache = NeffCache.open(settings=CacheSettings(str(tmp_path / "shared"), tmp_path / "local-a", job="train"))
    cache.get_or_compile(parts("small"), lambda: b"s" * 1000, label="decode")
    cache.get_or_compile(parts("large"), lambda: b"l" * 5000, label="prefill")
    cache.close_job()
    return cache


def document(result: Result) -> dict[str, Any]:
    assert result.stdout.count("\n") == 1, result.output
    value: dict[str, Any] = json.loads(result.stdout)
    assert next(iter(value)) == "schema_version"
    return value


def test_export_and_import(invoke: Invoke, cache: NeffCache, tmp_path: Path) -> None:
    done = invoke("cache", "export", "--job", "train", "-o", tmp_path / "train.tar")
    assert done.exit_code == 0, done.output
    assert f"exported: 2 (5.9 KiB) to {tmp_path / 'train.tar'}" in done.stdout.replace("\n", " ")
    other = ("--cache-url", tmp_path / "other")
    dry = invoke("cache", "import", tmp_path / "train.tar", "-n", *other)
    assert (dry.exit_code, "to be imported: 2" in dry.stdout) == (0, True)
    assert not (tmp_path / "other").exists()
    found = document(invoke("cache", "import", tmp_path / "train.tar", "--json", *other))
    assert (found["counts"], found["bytes"]) == ({"moved": 2, "present": 0, "skipped": 0, "failed": 0}, 6000)
    assert {item["key"] for item in found["items"]} == {parts("small").key, parts("large").key}
    again = invoke("cache", "import", tmp_path / "train.tar", *other)
    assert again.stdout.strip() == "already there: 2 (0 B)"
    assert invoke("cache", "jobs", "show", "train", "-q", *other).stdout.split() == sorted(
        it["key"] for it in found["items"]
    )


@pytest.mark.parametrize("which", [("--all",), ("--label", "dec"), ("KEY",), ("SHORT",), ("--larger-than", "4K")])
def test_export_takes_keys_and_filters(
    invoke: Invoke, cache: NeffCache, tmp_path: Path, which: tuple[str, ...]
) -> None:
    key = parts("small").key
    chosen = [{"KEY": key, "SHORT": key[:8]}.get(word, word) for word in which]
    found = document(invoke("cache", "export", *chosen, "-o", tmp_path / "out", "--json"))
    assert found["counts"]["moved"] == (2 if which == ("--all",) else 1)


def test_export_wants_to_know_what(invoke: Invoke, cache: NeffCache, tmp_path: Path) -> None:
    for words in ((), ("--all", "--job", "train"), ("abcd", "--all")):
        result = invoke("cache", "export", *words, "-o", tmp_path / "out")
        assert (result.exit_code, "say what to export" in result.stderr) == (2, True)
    none = invoke("cache", "export", "--label", "nothing like it", "-o", tmp_path / "out")
    assert (none.exit_code, "there is nothing to export" in none.stderr) == (1, True)
    assert not (tmp_path / "out").exists()


def test_import_tells_what_stays_out(invoke: Invoke, cache: NeffCache, tmp_path: Path) -> None:
    k = "0123456789abcdef0123456789abcdef"
    (tmp_path / "torch" / "01" / "23").mkdir(parents=True)
    (tmp_path / "torch" / "01" / "23" / f"{k}.neff").write_bytes(b"")
    result = invoke("cache", "import", tmp_path / "torch")
    assert result.exit_code == 0
    assert f"{k}.neff" in result.stdout
    assert "it is empty" in result.stdout
    assert "skipped: 1 (0 B)" in result.stdout
    (tmp_path / "empty").mkdir()
    nothing = invoke("cache", "import", tmp_path / "empty")
    assert (nothing.exit_code, "hint:" in nothing.stderr) == (1, True)


def test_prefetch_brings_a_job(invoke: Invoke, cache: NeffCache, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = invoke("cache", "prefetch", "--job", "train", "--dry-run")
    assert (planned.exit_code, "to be fetched: 2 (5.9 KiB" in planned.stdout) == (0, True)
    monkeypatch.setenv("NEURON_ENV_JOB", "train")
    assert document(invoke("cache", "prefetch", "--json"))["counts"]["moved"] == 2
    assert invoke("cache", "prefetch").stdout.startswith("already there: 2")
    assert invoke("cache", "rm", parts("small").key, "-y").exit_code == 0
    monkeypatch.setenv("NEURON_ENV_CACHE_LOCAL_DIR", str(cache.settings.local_dir) + "-c")
    missing = invoke("cache", "prefetch")
    assert missing.exit_code == 1
    assert "the store has no entry for it" in missing.stdout


def test_prefetch_of_no_job(invoke: Invoke, cache: NeffCache) -> None:
    assert invoke("cache", "prefetch").exit_code == 2
    unknown = invoke("cache", "prefetch", "--job", "other")
    assert (unknown.exit_code, "neuron-env cache jobs ls" in unknown.stderr) == (1, True)


def test_push_publishes(invoke: Invoke, cache: NeffCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_ENV_CACHE_LOCAL_DIR", str(tmp_path / "local-a"))
    elsewhere = ("--cache-url", tmp_path / "other")
    assert "to be pushed: 2" in invoke("cache", "push", "-n", *elsewhere).stdout
    assert document(invoke("cache", "push", "--json", *elsewhere))["counts"]["moved"] == 2
    assert len(invoke("cache", "ls", "-q", *elsewhere).stdout.split()) == 2
    assert invoke("cache", "push").stdout.startswith("already there: 2")


def test_jobs(invoke: Invoke, cache: NeffCache) -> None:
    [job] = document(invoke("cache", "jobs", "ls", "--json"))["jobs"]
    assert (job["job"], job["keys"], job["processes"]) == ("train", 2, 1)
    assert "train" in invoke("cache", "jobs", "ls").stdout
    keys = document(invoke("cache", "jobs", "show", "train", "--json"))["keys"]
    assert {(it["label"], it["state"]) for it in keys} == {("decode", "neff"), ("prefill", "neff")}
    refused = invoke("cache", "jobs", "rm", "train")
    assert (refused.exit_code, "`-y`" in refused.stderr) == (1, True)
    assert document(invoke("cache", "jobs", "rm", "train", "-y", "--older-than", "1h", "--json"))["removed"] == 0
    assert "removed 1 records" in invoke("cache", "jobs", "rm", "train", "-y").stdout
    assert invoke("cache", "jobs", "show", "train").exit_code == 1


def test_no_shared_cache_is_an_error(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_ENV_CACHE_URL", "none")
    monkeypatch.setenv("NEURON_ENV_CACHE_LOCAL_DIR", str(tmp_path))
    for words in (("export", "--all", "-o", tmp_path / "x"), ("push",), ("prefetch", "--job", "a")):
        result = invoke("cache", *words)
        assert (result.exit_code, "no shared cache is set" in result.stderr) == (1, True)


def test_cache_that_is_only_read_is_not_written(
    invoke: Invoke, cache: NeffCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    invoke("cache", "export", "--all", "-o", tmp_path / "all.tar")
    monkeypatch.setenv("NEURON_ENV_CACHE_MODE", "read-only")
    for words in (("push",), ("import", tmp_path / "all.tar"), ("jobs", "rm", "train", "-y")):
        result = invoke("cache", *words)
        assert (result.exit_code, "NEURON_ENV_CACHE_MODE" in result.stderr) == (1, True)
    assert invoke("cache", "push", "--dry-run").exit_code == 0
    assert invoke("cache", "prefetch", "--job", "train").exit_code == 0


def test_copy_seeds_another_store_and_sends_nothing_twice(invoke: Invoke, cache: NeffCache, tmp_path: Path) -> None:
    there = tmp_path / "eu"
    command = ("cache", "copy", "--to", there, "--all", "--json")
    assert document(invoke(*command, "--dry-run"))["counts"]["moved"] == 2
    assert not there.exists()
    assert document(invoke(*command))["counts"]["moved"] == 2
    assert document(invoke(*command))["counts"] == {"moved": 0, "present": 2, "skipped": 0, "failed": 0}
    seen = document(invoke("cache", "ls", "--json", "--cache-url", there))
    assert seen["total"] == 2
    other = invoke("cache", "copy", "--to", there, "--all", "--to-namespace", "team")
    assert other.stdout.splitlines()[-1].startswith("copied: 2")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "where from and where to"),
        (("--to", "/nowhere"), "say what to copy"),
        (("--to", "{here}", "--all"), "to itself"),
    ],
)
def test_copy_that_makes_no_sense_is_a_usage_error(
    invoke: Invoke, cache: NeffCache, arguments: tuple[str, ...], message: str
) -> None:
    result = invoke("cache", "copy", *(it.replace("{here}", str(cache.settings.url)) for it in arguments))
    assert (result.exit_code, message in result.stderr) == (2, True), result.stderr
