"""What a compile writes beside its NEFF comes back from every tier, whole or as a miss."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cache_kit import never, open_cache, parts
from service_kit import Service

from cache_server import Outcome
from cache_server.outputs import Built, pack_outputs, unpack_outputs
from cache_server.transfer.prefetch import prefetch
from cache_server.transfer.push import push
from neuron_runtime.compiler.errors import CompileFailure, FailureKind

BUILT = Built(b"neff", {"--logfile#0": b"a log\n", "--metrics#0": b""})


def test_every_tier_gives_them_back(tmp_path: Path) -> None:
    first = open_cache(tmp_path, "a").get_or_compile(parts(), lambda: BUILT)
    local = open_cache(tmp_path, "a").get_or_compile(parts(), never)
    shared = open_cache(tmp_path, "b").get_or_compile(parts(), never)
    kept = open_cache(tmp_path, "b").get_or_compile(parts(), never)
    assert [it.outcome for it in (first, local, shared, kept)] == [
        Outcome.COMPILED, Outcome.LOCAL_HIT, Outcome.SHARED_HIT, Outcome.LOCAL_HIT,
    ]  # fmt: skip
    assert all((it.neff, it.outputs) == (BUILT.neff, BUILT.outputs) for it in (first, local, shared, kept))


def test_a_service_keeps_them_and_a_failures_exit_code(tmp_path: Path, serve: Callable[..., Service]) -> None:
    url = serve().url

    def fail() -> bytes:
        raise CompileFailure("no", kind=FailureKind.COMPILER_ERROR, exit_code=70)

    open_cache(tmp_path, "a", url=url).get_or_compile(parts(), lambda: BUILT)
    assert open_cache(tmp_path, "b", url=url).get_or_compile(parts(), never).outputs == BUILT.outputs
    for host in "ab":
        with pytest.raises(CompileFailure) as caught:
            open_cache(tmp_path, host, url=url).get_or_compile(parts("bad"), fail)
        assert caught.value.exit_code == 70


def test_a_missing_one_is_a_miss(tmp_path: Path) -> None:
    cache = open_cache(tmp_path, "a")
    cache.get_or_compile(parts(), lambda: BUILT)
    assert cache.storage is not None
    manifest = cache.peek(parts())
    assert manifest is not None
    digest = manifest.files["output:--logfile#0"].sha256
    next((tmp_path / "shared").rglob(digest)).unlink()
    result = open_cache(tmp_path, "b").get_or_compile(parts(), lambda: BUILT)
    assert result.outcome is Outcome.COMPILED


def test_damage_in_the_local_tier_is_a_miss_and_is_set_aside(tmp_path: Path) -> None:
    cache = open_cache(tmp_path, "a")
    cache.get_or_compile(parts(), lambda: BUILT)
    file = cache.local.path(parts()).with_name(cache.local.path(parts()).name + ".outputs")
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    again = open_cache(tmp_path, "a")
    assert again.get_or_compile(parts(), never).outcome is Outcome.SHARED_HIT
    assert again.stats.quarantined == 1


def test_push_and_prefetch_take_them_along(tmp_path: Path) -> None:
    alone = open_cache(tmp_path, "a", url=str(tmp_path / "away"))
    alone.get_or_compile(parts(), lambda: BUILT)
    fleet = open_cache(tmp_path, "b")
    assert fleet.storage is not None
    push(alone.local, fleet.storage.store)
    prefetch(fleet.storage.store, fleet.local, {parts().key: ""})
    assert fleet.get_or_compile(parts(), never).outcome is Outcome.LOCAL_HIT
    assert fleet.get_or_compile(parts(), never).outputs == BUILT.outputs


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"{}\n",
        b'{"outputs": [["a", 1]]}\n',
        b'{"outputs": [["a", -1, ""]]}\n',
        pack_outputs({"a": b"1"})[:-1],
        pack_outputs({"a": b"1"}) + b"2",
        pack_outputs({"a": b"1"}).replace(b"1", b"2"),
    ],
)
def test_other_bytes_are_no_outputs(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        unpack_outputs(data)
    assert unpack_outputs(pack_outputs({"a": b"1", "b": b""})) == {"a": b"1", "b": b""}
