"""neuron-env cache through a service: the same commands, the same answers."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from cache_server import CacheSettings, KeyParts, NeffCache
from cache_server.leases import Lease, Vacant
from cache_server.leases.owner import Owner
from cache_server.storage import Storage, open_storage
from cache_server.trust.principal import Scope
from cache_server.trust.tokens import TokenBook
from neuron_runtime.compiler.errors import CompileFailure, FailureKind

Invoke = Callable[..., Result]
DEADLINE = 60.0


def parts(ir: str, flags: tuple[str, ...] = ("-O2",)) -> KeyParts:
    return KeyParts.of(ir=ir.encode(), compiler="cc", compiler_version="2.0", flags=flags, target="trn2", lnc=2)


SMALL, LARGE, BAD = parts("small").key, parts("large", ("-O1",)).key, parts("bad").key


@dataclass
class Served:
    """A service over a store with two NEFFs and a failure, and the store itself."""

    url: str
    directory: Path
    storage: Storage
    tokens: dict[str, str]


def serve(directory: Path, **environment: str) -> tuple[subprocess.Popen[str], str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NEURON_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "cli.main", "cache", "serve", str(directory), "--listen", "127.0.0.1:0"],
        env={**clean, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                lines.put(line)
        lines.put("")

    threading.Thread(target=read, daemon=True).start()
    while line := lines.get(timeout=DEADLINE):
        if line.startswith("listening on "):
            return process, line.removeprefix("listening on ").strip()
    raise AssertionError("the service did not start")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    directory = tmp_path / "shared"
    cache = NeffCache.open(settings=CacheSettings(str(directory), tmp_path / "maker"))
    cache.get_or_compile(parts("small"), lambda: b"s" * 1000, label="decode")
    cache.get_or_compile(parts("large", ("-O1",)), lambda: b"l" * 5000, label="prefill")

    def broken() -> bytes:
        raise CompileFailure("no such op", kind=FailureKind.COMPILER_ERROR)

    with pytest.raises(CompileFailure):
        cache.get_or_compile(parts("bad"), broken)
    storage = open_storage(str(directory))
    book = TokenBook(storage.store.backend)
    tokens = {
        name: book.create(name, scope, names, now=time.time(), created_by="test", expires_at=None)[0].reveal()
        for name, scope, names in (
            ("reader", Scope.READ, None),
            ("writer", Scope.WRITE, None),
            ("root", Scope.ADMIN, None),
            ("some", Scope.ADMIN, frozenset({"default"})),
        )
    }
    process, url = serve(directory)
    try:
        yield Served(url, directory, storage, tokens)
    finally:
        process.terminate()
        process.wait(DEADLINE)


@pytest.fixture
def through(served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Served:
    """The service named by the environment, for its administrator; its index has seen everything."""
    monkeypatch.setenv("NEURON_ENV_CACHE_URL", served.url)
    monkeypatch.setenv("NEURON_ENV_CACHE_TOKEN", served.tokens["root"])
    monkeypatch.setenv("NEURON_ENV_CACHE_LOCAL_DIR", str(tmp_path / "local"))
    return served


def document(result: Result) -> dict[str, Any]:
    assert result.stdout, (result.stderr, result.exception)
    value: dict[str, Any] = json.loads(result.stdout)
    return value


def settled(act: Callable[[], Any], wanted: Any) -> Any:
    """What `act` gives once it is what is wanted: the index of a service follows its store."""
    end = time.monotonic() + DEADLINE
    while (found := act()) != wanted:
        assert time.monotonic() < end, f"{found} instead of {wanted}"
        time.sleep(0.02)
    return found


def test_looking_gives_the_same_answers_as_at_the_store_itself(invoke: Invoke, through: Served) -> None:
    settled(lambda: document(invoke("cache", "ls", "--json"))["total"], 3)
    at_store = ("--cache-url", str(through.directory))
    for command in (
        ("ls",),
        ("ls", "--sort", "size", "--limit", "1"),
        ("ls", "--label", "dec"),
        ("ls", "--kind", "failure"),
        ("ls", "--larger-than", "4K"),
        ("ls", "--older-than", "1h"),
        ("show", SMALL),
        ("show", BAD[:8]),
        ("explain", LARGE[:8]),
        ("diff", SMALL[:8], LARGE[:8]),
        ("locks",),
        ("gc", "--max-bytes", "0", "--dry-run"),
        ("fsck",),
    ):
        ours = document(invoke("cache", *command, "--json"))
        theirs = document(invoke("cache", *command, "--json", *at_store))
        for found in (ours, theirs):
            found.get("entries", []).sort(key=lambda entry: entry["key"])
        assert ours == theirs, command
    # Nobody has used anything by that.
    counted = document(invoke("cache", "status", "--json"))["service"]
    assert (counted["hits"], counted["misses"]) == (0, 0)


def test_status_shows_what_the_service_knows(invoke: Invoke, through: Served) -> None:
    settled(lambda: document(invoke("cache", "status", "--json"))["entries"], 3)
    settled(lambda: document(invoke("cache", "status", "--json"))["service"]["index_age_seconds"] is not None, True)
    settled(lambda: document(invoke("cache", "status", "--json"))["service"]["stored_bytes"] > 6000, True)
    found = document(invoke("cache", "status", "--json"))
    assert found["store"] == through.url
    assert found["neffs"] == {"count": 2, "bytes": 6000}
    assert found["failures"] == {"count": 1, "expired": 0}
    assert found["service"]["index_age_seconds"] >= 0
    assert found["service"]["stored_bytes"] > 6000
    shown = invoke("cache", "status").stdout
    assert "2 NEFFs, 5.9 KiB, 0 pinned" in shown
    assert "looked through the store" in shown


def test_pins_hold_and_rm_takes_the_rest(invoke: Invoke, through: Served) -> None:
    settled(lambda: document(invoke("cache", "ls", "--json"))["total"], 3)
    assert document(invoke("cache", "pin", SMALL[:8], "--json"))["changed"] == [SMALL]
    assert document(invoke("cache", "pin", SMALL, "--json"))["changed"] == []
    settled(lambda: "pinned" in invoke("cache", "ls").stdout, True)
    refused = invoke("cache", "rm", SMALL, "-y")
    assert refused.exit_code == 1
    assert f"neuron-env cache unpin {SMALL[:16]}" in refused.stderr
    removed = document(invoke("cache", "rm", LARGE[:8], BAD, "-y", "--json"))
    assert {(it["kind"], it["name"]) for it in removed["removed"]} == {("entry", LARGE), ("failure", BAD)}
    assert through.storage.store.read_manifest(LARGE) is None
    assert settled(lambda: invoke("cache", "ls", "-q").stdout.split(), [SMALL])
    assert document(invoke("cache", "unpin", SMALL[:8], "--json"))["unpinned"] == [SMALL]
    assert invoke("cache", "rm", SMALL, "-y").exit_code == 0
    assert "there is no entry" in invoke("cache", "show", SMALL).stderr
    assert "there is no pin" in invoke("cache", "unpin", SMALL).stderr


def test_gc_removes_entries_and_their_blobs_at_once(invoke: Invoke, through: Served) -> None:
    found = document(invoke("cache", "gc", "--max-bytes", "5500", "-y", "--json"))
    assert [it["name"] for it in found["removed"] if it["kind"] == "entry"] == [SMALL]
    assert found["freed_bytes"] > 1000
    assert settled(lambda: sorted(invoke("cache", "ls", "-q").stdout.split()), sorted([LARGE, BAD]))
    assert len(list(through.directory.rglob("blobs/sha256/*/*"))) == 1


def test_fsck_finds_and_mends_what_is_damaged(invoke: Invoke, through: Served) -> None:
    for blob in through.directory.rglob("blobs/sha256/*/*"):
        blob.write_bytes(blob.read_bytes()[:-1] + b"?")
    found = invoke("cache", "fsck")
    assert found.exit_code == 1
    assert found.stdout.count("damaged blob") == 2
    mended = invoke("cache", "fsck", "--repair", "--json")
    assert mended.exit_code == 0
    assert [it["repaired"] for it in document(mended)["problems"]] == [True, True]
    assert document(invoke("cache", "fsck", "--json"))["problems"] == []


def test_takeover_ends_the_lease_of_a_silent_owner_and_refuses_a_live_one(invoke: Invoke, through: Served) -> None:
    def hold(ir: str, owner: Owner, seconds: float) -> Lease:
        name = through.storage.store.record_name(parts(ir).key)
        return Lease.claim(through.storage.records, name, Vacant(0, None), owner=owner, lease_seconds=seconds)

    hold("stranger", Owner("another-host", 7, "somebody"), 0.3)
    hold("alive", Owner.here(), 15.0)
    found = {it["key"]: it["owner_is"] for it in document(invoke("cache", "locks", "--json"))["locks"]}
    assert found == {parts("stranger").key: "unknown", parts("alive").key: "alive"}
    watched = {it["key"]: it["owner_is"] for it in document(invoke("cache", "locks", "--watch", "--json"))["locks"]}
    assert watched[parts("stranger").key] == "dead"
    assert document(invoke("cache", "takeover", parts("stranger").key[:9], "--json"))["owner_was"] == "dead"
    refused = invoke("cache", "takeover", parts("alive").key)
    assert "is alive and holds" in refused.stderr
    assert document(invoke("cache", "takeover", parts("alive").key, "--force", "--json"))["epoch"] == 1
    assert document(invoke("cache", "locks", "--json"))["locks"] == []
    assert document(invoke("cache", "status", "--json"))["in_flight"] == []


def test_takeover_of_a_lease_that_was_renewed_since_is_refused(through: Served) -> None:
    from cache_server.remote.administration import RemoteAdministration
    from cache_server.remote.options import RemoteOptions

    name = through.storage.store.record_name(parts("x").key)
    lease = Lease.claim(through.storage.records, name, Vacant(0, None), owner=Owner.here(), lease_seconds=15.0)
    administration = RemoteAdministration(RemoteOptions.from_environment(through.url), "default")
    (hold,) = administration.holds()
    lease.renew()
    assert not administration.free(hold)
    lease.renew()


def test_a_token_that_may_not_is_told_which_scope_it_lacks(
    invoke: Invoke, through: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = "the scope admin is missing"
    for who, command, missing in (
        ("reader", ("pin", SMALL), lacking),
        ("writer", ("rm", SMALL, "-y"), lacking),
        ("writer", ("fsck",), lacking),
        ("some", ("gc", "--dry-run"), "which all of them share"),
        ("some", ("fsck", "--repair"), "for every namespace"),
    ):
        monkeypatch.setenv("NEURON_ENV_CACHE_TOKEN", through.tokens[who])
        result = invoke("cache", *command)
        told = " ".join(result.stderr.split())
        assert result.exit_code == 1
        assert missing in told, command
        assert "neuron-env cache token create NAME --scope admin" in told
    assert len(through.storage.store.read_manifests([SMALL, LARGE])) == 2


def test_a_service_that_is_away_is_an_error_with_a_hint(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    for command in (("ls",), ("fsck",), ("gc", "--dry-run")):
        result = invoke("cache", *command, "--cache-url", "http://127.0.0.1:9")
        assert result.exit_code == 1
        assert "cannot be reached" in result.stderr
