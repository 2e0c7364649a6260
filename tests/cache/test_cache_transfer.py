"""Entries out of one store and into another: bundles, the vendor's caches, and hostile archives."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import stat
import tarfile
import threading
import time
from pathlib import Path

import pytest
from cache_kit import never, parts, unprivileged
from transfer_kit import FLAGS, VERSION, cache_at, info, legacy_cache, module, neff, raw_tar, tar_of, torch_cache
from trust_kit import Fleet

from cache_server import CacheError, KeyParts, NeffCache, Outcome
from cache_server.administration.fsck import check
from cache_server.leases.owner import Owner
from cache_server.permissions import permissions_named
from cache_server.storage import open_tier
from cache_server.store import LAYOUT
from cache_server.transfer.crew import in_parallel
from cache_server.transfer.exporting import Export
from cache_server.transfer.importing import Import
from cache_server.transfer.layouts import Layout
from cache_server.transfer.limits import Limits
from cache_server.transfer.report import Fate, Item, Report
from cache_server.transfer.sinks import open_sink
from cache_server.transfer.source import open_source
from cache_server.transfer.tree import Tree
from cache_server.trust.keys import SigningKey
from cache_server.trust.signatures import Signer, Trust, Verifier
from neuron_runtime.compiler.errors import CompileFailure, FailureKind

K = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def full(tmp_path: Path) -> NeffCache:
    """A cache with two NEFFs and a remembered failure."""
    cache = cache_at(tmp_path, "full")
    cache.get_or_compile(parts("one", compiler="neuronx-cc"), lambda: b"1" * 1000, label="decode")
    cache.get_or_compile(parts("two", compiler="neuronx-cc"), lambda: b"2" * 2000, label="prefill")

    def fail() -> bytes:
        raise CompileFailure("no such operator", kind=FailureKind.COMPILER_ERROR)

    with pytest.raises(CompileFailure):
        cache.get_or_compile(parts("three", compiler="neuronx-cc"), fail, label="broken")
    return cache


def export(cache: NeffCache, target: Path, layout: Layout = Layout.BUNDLE) -> Report:
    assert cache.storage is not None
    with open_sink(target) as sink:
        return Export(cache.storage.store, sink, str(target)).run(cache.entries(), layout)


def take_in(
    path: Path, cache: NeffCache, *, only: Layout | None = None, dry_run: bool = False, limits: Limits | None = None
) -> dict[str, Item]:
    assert cache.storage is not None
    tree = Tree(cache.settings.local_dir, permissions_named("private"))
    with open_source(path, limits or Limits()) as source:
        report = Import(source, cache.storage, tree, owner=Owner.here(), dry_run=dry_run).run(only)
    return {item.name: item for item in report.items}


def fates(items: dict[str, Item]) -> dict[str, str]:
    return {name: item.fate.value for name, item in items.items()}


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)


@pytest.mark.parametrize("form", ["bundle", "bundle.tar", "again.tar", "again.tar.gz"])
def test_bundle_carries_entries_to_another_store(tmp_path: Path, full: NeffCache, form: str) -> None:
    target = tmp_path / form
    if form.startswith("bundle"):
        export(full, target)
    else:  # one that somebody unpacked and packed again
        export(full, tmp_path / "unpacked")
        tar_of(tmp_path / "unpacked", target, "w:gz" if form.endswith("gz") else "w")
    other = cache_at(tmp_path, "other")
    assert fates(take_in(target, other)) == {"decode": "moved", "prefill": "moved", "broken": "moved"}
    hit = other.get_or_compile(parts("one", compiler="neuronx-cc"), never)
    assert (hit.outcome, hit.neff) == (Outcome.SHARED_HIT, b"1" * 1000)
    with pytest.raises(CompileFailure, match="no such operator"):
        other.get_or_compile(parts("three", compiler="neuronx-cc"), never)
    assert set(fates(take_in(target, other)).values()) == {"present"}
    assert other.storage is not None
    assert check(other.storage, now=time.time(), grace=3600.0) == []


def test_unpacked_bundle_is_a_store_that_may_be_read_only(tmp_path: Path, full: NeffCache, public: Path) -> None:
    export(full, public / "bundle")
    for path in [public / "bundle", *(public / "bundle").rglob("*")]:
        path.chmod(path.stat().st_mode & 0o555)
    (public / "local").mkdir(mode=0o777)
    (public / "local").chmod(0o777)
    with unprivileged():
        cache = NeffCache.open(str(public / "bundle"), local_dir=public / "local" / "own")
        hit = cache.get_or_compile(parts("two", compiler="neuronx-cc"), never)
        fresh = cache.get_or_compile(parts("new"), lambda: b"made here")
    assert (hit.outcome, hit.neff) == (Outcome.SHARED_HIT, b"2" * 2000)
    assert fresh.neff == b"made here"


def test_bundles_of_equal_entries_are_equal(tmp_path: Path, full: NeffCache) -> None:
    export(full, tmp_path / "a.tar")
    export(full, tmp_path / "b.tar")
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()
    with tarfile.open(tmp_path / "a.tar") as archive:
        members = archive.getmembers()
    assert members[0].name == "BUNDLE.json"
    assert {(m.mtime, m.uid, m.gid, m.uname, m.mode) for m in members} == {(0, 0, 0, "", 0o644)}
    kinds = [m.name.split("/")[1] for m in members[1:]]
    assert kinds == sorted(kinds)  # blobs before entries: nobody who unpacks it shows an entry too early


def test_damaged_blob_is_left_out_of_an_export(tmp_path: Path, full: NeffCache) -> None:
    entry = full.peek(parts("one", compiler="neuronx-cc"))
    assert entry is not None
    sha256 = entry.files["module.neff"].sha256
    damage(tmp_path / "full" / "shared" / LAYOUT / "blobs" / "sha256" / sha256[:2] / sha256)
    items = {item.name: item for item in export(full, tmp_path / "out").items}
    assert (items["decode"].fate, items["prefill"].fate) == (Fate.FAILED, Fate.MOVED)
    assert "missing or damaged" in items["decode"].why
    other = cache_at(tmp_path, "other")
    assert fates(take_in(tmp_path / "out", other)) == {"prefill": "moved", "broken": "moved"}


def test_damage_on_the_way_is_refused_entry_by_entry(tmp_path: Path, full: NeffCache) -> None:
    export(full, tmp_path / "out")
    entry, failure = (full.peek(parts(it, compiler="neuronx-cc")) for it in ("two", "three"))
    assert entry is not None
    assert failure is not None
    sha256 = entry.files["module.neff"].sha256
    damage(tmp_path / "out" / LAYOUT / "blobs" / "sha256" / sha256[:2] / sha256)
    damage(tmp_path / "out" / LAYOUT / "entries" / "default" / failure.key[:2] / f"{failure.key}.json")
    other = cache_at(tmp_path, "other")
    items = take_in(tmp_path / "out", other)
    assert fates(items)["decode"] == "moved"
    assert (items["prefill"].fate, items["prefill"].why.endswith("the digest that names it")) == (Fate.FAILED, True)
    assert [item.fate for name, item in items.items() if name.endswith(".json")] == [Fate.FAILED]
    assert other.get(parts("two", compiler="neuronx-cc")) is None


def test_result_that_is_there_stays(tmp_path: Path, full: NeffCache) -> None:
    export(full, tmp_path / "out.tar")
    other = cache_at(tmp_path, "other")
    other.get_or_compile(parts("one", compiler="neuronx-cc"), lambda: b"another result")
    items = take_in(tmp_path / "out.tar", other)
    assert (items["decode"].fate, items["decode"].why) == (Fate.PRESENT, "with other content")
    assert other.get_or_compile(parts("one", compiler="neuronx-cc"), never).neff == b"another result"


def test_neff_takes_the_place_of_a_remembered_failure(tmp_path: Path, full: NeffCache) -> None:
    export(full, tmp_path / "out.tar")
    other = cache_at(tmp_path, "other")

    def fail() -> bytes:
        raise CompileFailure("bad luck", kind=FailureKind.COMPILER_ERROR)

    with pytest.raises(CompileFailure):
        other.get_or_compile(parts("one", compiler="neuronx-cc"), fail)
    assert fates(take_in(tmp_path / "out.tar", other))["decode"] == "moved"
    assert other.get_or_compile(parts("one", compiler="neuronx-cc"), never).neff == b"1" * 1000


def test_whole_store_is_taken_by_namespace(tmp_path: Path, full: NeffCache) -> None:
    team = NeffCache.open(str(tmp_path / "full" / "shared"), local_dir=tmp_path / "t")
    assert team.storage is not None
    team.storage.store.namespace = "team"
    team.get_or_compile(parts("team's"), lambda: b"t", label="team's")
    other = cache_at(tmp_path, "other")
    items = take_in(tmp_path / "full" / "shared" / LAYOUT, other)
    assert items["namespace team"].why.startswith("1 entries of another namespace")
    assert fates(items)["decode"] == "moved"
    assert "team's" not in items


def test_later_bundle_is_refused_whole(tmp_path: Path, full: NeffCache) -> None:
    export(full, tmp_path / "out")
    path = tmp_path / "out" / "BUNDLE.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 2}))
    other = cache_at(tmp_path, "other")
    with pytest.raises(CacheError, match="version 2"):
        take_in(tmp_path / "out", other)
    assert list(other.entries()) == []


def test_dry_run_changes_nothing(tmp_path: Path, full: NeffCache) -> None:
    export(full, tmp_path / "out.tar")
    other = cache_at(tmp_path, "other")
    assert set(fates(take_in(tmp_path / "out.tar", other, dry_run=True)).values()) == {"moved"}
    take_in(legacy_cache(tmp_path / "legacy"), other, dry_run=True)
    take_in(torch_cache(tmp_path / "torch", K), other, dry_run=True)
    assert not (tmp_path / "other").exists()


def test_export_overwrites_nothing_and_leaves_nothing_behind(tmp_path: Path, full: NeffCache) -> None:
    before = sorted(tmp_path.iterdir())
    for name in ("taken.tar", "taken/file"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("mine")
    for name in ("taken.tar", "taken", "packed.tar.gz"):
        with pytest.raises(CacheError):
            export(full, tmp_path / name)
    assert (tmp_path / "taken.tar").read_text() == "mine"
    with pytest.raises(KeyError), open_sink(tmp_path / "out.tar") as sink:
        sink.put("file", b"half")
        raise KeyError
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "taken.tar", tmp_path / "taken"])


# -- signatures


@pytest.mark.parametrize("namespace", ["default", "team"])
def test_signed_entry_stays_signed_in_its_namespace(tmp_path: Path, namespace: str) -> None:
    fleet = Fleet(tmp_path / "fleet")
    fleet.publish()
    with open_sink(tmp_path / "out.tar") as sink:
        store = fleet.reader().store
        Export(store, sink, "out").run(store.entries(), Layout.BUNDLE)
    target = open_tier(
        str(tmp_path / "other"), namespace=namespace, trust=Trust(Verifier([fleet.key.public], required=True))
    )
    tree = Tree(tmp_path / "tree", permissions_named("private"))
    with open_source(tmp_path / "out.tar") as source:
        assert Import(source, target, tree, owner=Owner.here()).run().counts["moved"] == 1
    # A signature is for one namespace: elsewhere the entry is there, and nobody who wants one believes it.
    assert (target.store.read_manifest(parts().key) is not None) == (namespace == "default")


def test_import_signs_nothing_that_nobody_vouched_for(tmp_path: Path, full: NeffCache) -> None:
    export(full, tmp_path / "out.tar")
    key = SigningKey.generate()
    for required in (True, False):
        trust = Trust(Verifier([key.public], required=required), Signer(key))
        target = open_tier(str(tmp_path / f"other-{required}"), trust=trust)
        tree = Tree(tmp_path / "tree", permissions_named("private"))
        with open_source(tmp_path / "out.tar") as source:
            report = Import(source, target, tree, owner=Owner.here()).run()
        assert report.counts["skipped" if required else "moved"] == 3
        assert all(entry.signature is None for entry in target.store.entries())


# -- the vendor's caches


def test_torchneuron_cache_goes_where_torchneuron_finds_it(tmp_path: Path) -> None:
    source = torch_cache(tmp_path / "torch", K, "fedcba98" * 4)
    torch_cache(source, "00" * 16, content=b"")
    torch_cache(source, "11" * 16, content=neff("torn")[:-50])
    (source / "locks").mkdir()
    (source / "locks" / f"{K}.lock").touch()
    cache = cache_at(tmp_path, "own")
    items = take_in(source, cache)
    assert (items[f"{K}.neff"].fate, items[f"{K}.neff"].key) == (Fate.MOVED, "")
    assert items[f"{'00' * 16}.neff"].why == "it is empty"
    assert items[f"{'11' * 16}.neff"].why.startswith("it is not a whole NEFF")
    assert items["1 files"].why == f"no part of a cache: locks/{K}.lock"
    kept = cache.settings.local_dir / K[0:2] / K[2:4] / f"{K}.neff"
    assert kept.read_bytes() == (source / K[0:2] / K[2:4] / f"{K}.neff").read_bytes()
    assert list(cache.entries()) == []  # nobody knows what it was made from
    assert take_in(source, cache)[f"{K}.neff"].fate is Fate.PRESENT


def test_local_tier_of_another_host_is_taken_with_its_keys(tmp_path: Path, full: NeffCache) -> None:
    items = take_in(full.settings.local_dir, cache := cache_at(tmp_path, "other"), only=Layout.TORCH_NEURONX)
    assert (fates(items)["decode"], fates(items)["prefill"]) == ("moved", "moved")
    assert cache.get_or_compile(parts("two", compiler="neuronx-cc"), never).outcome is Outcome.SHARED_HIT


def test_exported_torchneuron_layout_is_a_local_tier(tmp_path: Path, full: NeffCache) -> None:
    report = export(full, tmp_path / "image", Layout.TORCH_NEURONX)
    assert {item.name: item.fate for item in report.items}["broken"] is Fate.SKIPPED
    k = parts("one", compiler="neuronx-cc").short_key
    path = tmp_path / "image" / k[0:2] / k[2:4] / f"{k}.neff"
    assert path.read_bytes() == b"1" * 1000
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    cache = NeffCache.open("none", local_dir=tmp_path / "image")
    assert cache.get_or_compile(parts("one", compiler="neuronx-cc"), never).outcome is Outcome.LOCAL_HIT


@pytest.mark.parametrize("packed", [False, True], ids=["directory", "tar"])
def test_every_state_of_the_older_cache_is_told(tmp_path: Path, packed: bool) -> None:
    source = legacy_cache(tmp_path / "legacy")
    if packed:
        source = tar_of(source, tmp_path / "legacy.tar.gz", "w:gz")
    cache = cache_at(tmp_path, "own")
    items = {name.rpartition("/")[2].partition("+")[0]: item for name, item in take_in(source, cache).items()}
    expected = {
        "MODULE_100": (Fate.MOVED, ""),
        "MODULE_101": (Fate.MOVED, "its key cannot be known: there is no compile_flags.json"),
        "MODULE_102": (Fate.SKIPPED, "failed: ERROR: out of memory"),
        "MODULE_103": (Fate.SKIPPED, "locked: not compiled, and its lock is 0 min old"),
        "MODULE_104": (Fate.SKIPPED, "stale lock: not compiled, and its lock is 10080 min old"),
        "MODULE_105": (Fate.SKIPPED, "empty: its graph was never compiled"),
        "MODULE_106": (Fate.SKIPPED, "it is empty"),
        "MODULE_108": (Fate.SKIPPED, "unfinished: there is no model.done"),
    }
    assert {name: (item.fate, item.why) for name, item in items.items() if name in expected} == expected
    assert items["MODULE_107"].why.startswith("it is not a whole NEFF")
    [entry] = cache.entries()
    wanted = KeyParts.of(
        ir=b"hlo 100", compiler="neuronx-cc", compiler_version=VERSION, flags=FLAGS, target="trn1", lnc=1
    )
    assert (entry.parts, entry.label) == (wanted, "MODULE_100+aaaa")
    assert cache.get_or_compile(wanted, never).neff == neff("known")
    assert (cache.settings.local_dir / f"neuronxcc-{VERSION}" / "MODULE_101+aaaa" / "model.done").exists()


def test_older_cache_round_trips(tmp_path: Path) -> None:
    source = legacy_cache(tmp_path / "legacy")
    cache = cache_at(tmp_path, "own")
    take_in(source / f"neuronxcc-{VERSION}" / "MODULE_100+aaaa", cache)
    export(cache, tmp_path / "out", Layout.NEURONXLA)
    original = source / f"neuronxcc-{VERSION}" / "MODULE_100+aaaa"
    copy = tmp_path / "out" / f"neuronxcc-{VERSION}" / "MODULE_100+aaaa"
    assert {p.name: p.read_bytes() for p in copy.iterdir()} == {p.name: p.read_bytes() for p in original.iterdir()}


def test_own_entries_in_the_older_layout(tmp_path: Path, full: NeffCache) -> None:
    full.get_or_compile(parts("sim", compiler="neuronx-cc-sim"), lambda: b"s", label="simulated")
    report = export(full, tmp_path / "out", Layout.NEURONXLA)
    items = {item.name: item for item in report.items}
    assert items["simulated"].fate is Fate.SKIPPED
    [one] = (tmp_path / "out" / "neuronxcc-2.0").glob(f"MODULE_{parts('one', compiler='neuronx-cc').short_key}+*")
    assert {path.name for path in one.iterdir()} == {"model.neff", "model.done", "compile_flags.json"}
    assert json.loads((one / "compile_flags.json").read_text()) == ["-O2", "--target=trn2", "--lnc=2"]
    [failed] = [path.parent for path in (tmp_path / "out").rglob("model.log")]
    assert (failed / "model.log").read_text() == "no such operator"
    assert not (failed / "model.done").exists()


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (b"{}", "is not a list of flags"),
        (b"[1]", "is not a list of flags"),
        (b"\xff", "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b'["-O2"]', "names no target"),
        (b'["--target=trn2"]', "does not say how many cores"),
        (b'["--target=trn2", "--lnc=many"]', "cannot be read"),
    ],
)
def test_key_is_never_guessed(tmp_path: Path, flags: bytes, why: str) -> None:
    module(tmp_path / "legacy", "MODULE_1+a", neff=neff("x"), done=b"", hlo=b"hlo", flags=flags)
    cache = cache_at(tmp_path, "own")
    [item] = take_in(tmp_path / "legacy", cache).values()
    assert item.fate is Fate.MOVED
    assert why in item.why
    assert list(cache.entries()) == []


# -- hostile archives and directories


def test_hostile_members_are_refused_one_by_one(tmp_path: Path) -> None:
    good = f"{K[0:2]}/{K[2:4]}/{K}.neff"
    where = f"neuronxcc-{VERSION}/MODULE_1+a"
    archive = raw_tar(
        tmp_path / "bad.tar",
        (info("link", tarfile.SYMTYPE, "/etc/passwd"), b""),
        (info("hard", tarfile.LNKTYPE, good), b""),
        (info("pipe", tarfile.FIFOTYPE), b""),
        (info("device", tarfile.CHRTYPE), b""),
        (info(f"../{good}"), b"x"),
        (info(f"/{good}"), b"x"),
        (info(f"a/../{good}"), b"x"),
        (info("a\\b"), b"x"),
        (info("bell\x07"), b"x"),
        (info("d/" * 30 + "deep"), b"x"),
        (info(f"{where}/../../../escape"), b"x"),
        (info(good), neff("good")),
        (info(good), b"twice"),
    )
    cache = cache_at(tmp_path, "own")
    tree = Tree(cache.settings.local_dir, permissions_named("private"))
    assert cache.storage is not None
    with open_source(archive) as source:
        report = Import(source, cache.storage, tree, owner=Owner.here()).run()
    moved = report.having(Fate.MOVED)
    assert [item.name for item in moved] == [f"{K}.neff"]
    assert len(report.having(Fate.SKIPPED)) == 12
    files = [p for p in tmp_path.rglob("*") if p.is_file() and p != archive]
    assert [p.name for p in files] == [f"{K}.neff"]
    assert files[0].read_bytes() == neff("good")


def test_links_in_a_directory_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(neff("secret"))
    source = torch_cache(tmp_path / "torch", K)
    other = torch_cache(source, "ab" * 16).joinpath("ab", "ab", f"{'ab' * 16}.neff")
    other.unlink()
    other.symlink_to(tmp_path / "secret")
    (source / "loop").symlink_to(source)
    items = take_in(source, cache_at(tmp_path, "own"))
    assert items["loop"].why == items[f"ab/ab/{'ab' * 16}.neff"].why == "a symbolic link"
    assert items[f"{K}.neff"].fate is Fate.MOVED


@pytest.mark.parametrize("cut", [0.3, 0.9])
def test_archive_that_ends_early_gives_what_is_whole(tmp_path: Path, full: NeffCache, cut: float) -> None:
    export(full, tmp_path / "out.tar")
    data = (tmp_path / "out.tar").read_bytes().rstrip(b"\0")
    (tmp_path / "cut.tar").write_bytes(data[: int(len(data) * cut)])
    other = cache_at(tmp_path, "other")
    items = take_in(tmp_path / "cut.tar", other)
    assert items["(the rest of the archive)"].why.startswith(("it ends in the middle", "it lacks its end mark"))
    for entry in other.entries():
        assert entry.failure is not None or other.get(entry.parts) is not None


def test_damaged_header_ends_the_archive(tmp_path: Path, full: NeffCache) -> None:
    export(full, tmp_path / "out.tar")
    data = bytearray((tmp_path / "out.tar").read_bytes())
    data[512 * 2 + 20] ^= 1
    (tmp_path / "bad.tar").write_bytes(data)
    items = take_in(tmp_path / "bad.tar", cache_at(tmp_path, "other"))
    assert items["(the rest of the archive)"].why == "a header fails its checksum"


def test_sizes_and_numbers_are_bounded(tmp_path: Path) -> None:
    source = torch_cache(tmp_path / "torch", K, "ab" * 16, "cd" * 16)
    archive = tar_of(source, tmp_path / "a.tar")
    for path in (source, archive):
        with pytest.raises(CacheError, match="no cache that can be imported"):
            take_in(path, cache_at(tmp_path, "small"), limits=Limits(member_size=100))
    many = take_in(archive, cache_at(tmp_path, "many"), limits=Limits(members=6))
    assert many["(the rest of the archive)"].why == "more than 6 members"


def test_compressed_bomb_is_refused_early(tmp_path: Path) -> None:
    bomb = raw_tar(tmp_path / "bomb.tar", (info("zeros"), b"\0" * (4 << 20)))
    packed = tmp_path / "bomb.tar.gz"
    packed.write_bytes(gzip.compress(bomb.read_bytes()))
    with pytest.raises(CacheError, match="unpacks to more than"):
        take_in(packed, cache_at(tmp_path, "own"), limits=Limits(ratio_floor=1 << 20))


@pytest.mark.parametrize("content", [b"", b"not an archive" * 100, b"\x1f\x8b", b"\x1f\x8b\x08\x00" + b"x" * 600])
def test_what_is_no_archive_is_said_to_be_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file.tar").write_bytes(content)
    with pytest.raises(CacheError):
        take_in(tmp_path / "file.tar", cache_at(tmp_path, "own"))
    with pytest.raises(CacheError):
        take_in(tmp_path / "absent.tar", cache_at(tmp_path, "own"))


def test_long_names_of_both_dialects_are_read(tmp_path: Path) -> None:
    folder = "a-folder-with-a-long-name-" * 6
    name = f"{folder}/{K[0:2]}/{K[2:4]}/{K}.neff"
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        path = tmp_path / f"{form}.tar"
        with tarfile.open(path, "w", format=form) as archive:
            member = info(name)
            member.size = len(neff("long"))
            archive.addfile(member, io.BytesIO(neff("long")))
        assert fates(take_in(path, cache_at(tmp_path, f"own-{form}"))) == {f"{K}.neff": "moved"}


def test_crew_holds_no_more_than_its_budget(tmp_path: Path) -> None:
    lock, held, most = threading.Lock(), 0, 0

    def work(weight: int) -> int:
        nonlocal held, most
        with lock:
            held += weight
            most = max(most, held)
        tmp_path.stat()
        with lock:
            held -= weight
        return weight

    weights = [3, 5, 7, 200, 1] * 20
    assert sorted(in_parallel(work, weights, size=lambda it: it, budget=10)) == sorted(weights)
    assert most <= 200  # one thing of any size goes alone


def test_import_ends_at_the_first_error_of_the_store(tmp_path: Path, full: NeffCache) -> None:
    export(full, tmp_path / "out.tar")
    other = cache_at(tmp_path, "other")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "shared").write_text("in the way")
    with pytest.raises(CacheError):
        take_in(tmp_path / "out.tar", other)
    shutil.rmtree(tmp_path / "other")
