"""Every byte of a NEFF is hostile until checked: each case must be refused with the right name, and cheaply."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import threading
import zlib
from pathlib import Path
from typing import Any

import pytest
from neff_samples import (
    END,
    archive_of,
    content_of,
    entry,
    hardware,
    ours,
    raw_entry,
    seal,
    seal_tar,
    tar,
    with_manifest,
    with_members,
)

from neuron_runtime.neff import NeffAccessError, NeffError, NeffLimits, read_neff, unpack_neff, verify_neff


def refused(data: bytes, limits: NeffLimits | None = None) -> str:
    """The field that both the reader and the verifier name."""
    with pytest.raises(NeffError) as caught:
        read_neff(data, limits or NeffLimits())
    failed = [finding.field for finding in verify_neff(data, limits or NeffLimits()) if not finding.ok]
    assert caught.value.field in failed
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500
    return caught.value.field


def test_empty_and_short_files() -> None:
    assert refused(b"") == "header"
    assert refused(b"MZ" * 100) == "header"
    assert refused(ours()[:1024]) == "data_size"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("header_size", 0),
        ("header_size", 1023),
        ("header_size", 1 << 63),
        ("data_size", 0),
        ("data_size", 1 << 63),
        ("neff_version_major", 1 << 40),
        ("lnc_size", 3),
        ("lnc_size", 1 << 31),
        ("hash", b"\xff" * 32),
        ("hash", bytes(32)),
        ("hash", b"0" * 32),
    ],
)
def test_a_wrong_header_field_is_named(field: str, value: Any) -> None:
    assert refused(seal(content_of(hardware()), **{field: value})) == field
    assert refused(seal(content_of(ours()), **{field: value})) == field


def test_a_header_that_belies_the_manifest() -> None:
    for field, value in {
        "name": "other",
        "neff_build_version": "2.24.8799.0",
        "lnc_size": 1,
        "pkg_version": 1,
        "feature_bits": 1,
        "num_tpb": 7,
    }.items():
        from neuron_runtime.neff import NeffHeader

        data = seal(content_of(ours()), NeffHeader.unpack(ours()), **{field: value})
        assert refused(data) == field


def test_bytes_after_the_content() -> None:
    assert refused(ours() + b"x") == "data_size"
    assert refused(seal(content_of(ours()) + b"x")) == "data"
    assert refused(seal(content_of(ours()) * 2)) == "data"
    assert refused(seal_tar(archive_of(hardware()) + b"x" * 512)) == "tar"
    assert refused(seal_tar(archive_of(hardware()) + bytes(2 << 20))) == "tar"


def test_damaged_gzip() -> None:
    content = content_of(hardware())
    assert refused(seal(content[:-1])) == "data"
    assert refused(seal(content[: len(content) // 2])) == "data"
    assert refused(seal(content[:-8] + bytes(8))) == "data"
    assert refused(seal(content[:2] + b"\xff" + content[3:])) == "data"
    assert refused(seal(b"\x1f\x8b")) == "data"


@pytest.mark.parametrize(
    "archive",
    [
        b"",
        b"short",
        bytes(512),
        raw_entry(b"a", 0),
        raw_entry(b"a", 0) + bytes(512),
        raw_entry(b"a", 5000, content=b"less"),
    ],
    ids=["empty", "short", "one-block", "no-end", "half-end", "cut-member"],
)
def test_an_archive_that_ends_early(archive: bytes) -> None:
    assert refused(seal_tar(archive)) in ("data", "tar")


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "//etc/passwd",
        ".//etc/passwd",
        "../escape",
        "sg00/../../escape",
        "sg00/..",
        "..",
        "sg00//def.json",
        "sg00/./def.json",
        "C:\\windows",
        "sg00\\..\\..\\escape",
        "new\nline",
        "\x1b[2Jclear",
        "right\u202eleft",
        "n" * 600,
        "/".join(["deep"] * 20),
    ],
)
def test_a_member_that_could_leave_its_folder(name: str, tmp_path: Path) -> None:
    data = seal_tar(tar([entry("neff.json", b"{}"), entry(name, b"boo")], tarfile.PAX_FORMAT))
    field = refused(data)
    assert field == "tar" or field.isprintable()
    with pytest.raises(NeffError):
        unpack_neff(data, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_an_absolute_path_is_called_that() -> None:
    with pytest.raises(NeffError, match="`/etc/passwd` is absolute"):
        read_neff(seal_tar(tar([entry("/etc/passwd", b"boo")])))


def test_a_name_that_is_no_text() -> None:
    assert refused(seal_tar(raw_entry(b"\xff\xfe", 0) + END)) == "\\xff\\xfe"
    assert refused(seal_tar(raw_entry(b"", 0) + END)) == "tar"
    assert refused(seal_tar(raw_entry(b"file/", 0) + END)) == "tar"


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, b"S", b"V", b"~"],
)
def test_links_devices_and_unknown_kinds(kind: bytes) -> None:
    linked = raw_entry(b"sg00/link", 0, kind)
    assert refused(seal_tar(linked + END)) == "sg00/link"


def test_one_name_twice() -> None:
    once = entry("sg00/def.json", b"1")
    assert refused(seal_tar(tar([once, once]))) == "sg00/def.json"
    assert refused(seal_tar(tar([once, entry("./sg00/def.json", b"2")]))) == "sg00/def.json"
    folder = entry("sg00", type=tarfile.DIRTYPE)
    assert refused(seal_tar(tar([folder, folder]))) == "sg00"


def test_a_name_that_is_both_file_and_folder() -> None:
    assert refused(seal_tar(tar([entry("a", b"1"), entry("a/b", b"2")]))) == "a/b"
    assert refused(seal_tar(tar([entry("a/b", b"2"), entry("a", b"1")]))) == "a"
    assert refused(seal_tar(tar([entry("a", b"1"), entry("a", type=tarfile.DIRTYPE)]))) == "a"


def test_a_folder_with_content() -> None:
    assert refused(seal_tar(raw_entry(b"sg00", 512, b"5", b"x" * 512) + END)) == "sg00"


@pytest.mark.parametrize(
    ("at", "field"),
    [(124, b"7777777777x\0"), (124, b"-0000000001\0"), (124, b"\xff" * 12), (124, b"\xbf" + b"\xff" * 11)],
    ids=["no-octal", "minus", "negative-256", "huge-256"],
)
def test_a_size_that_is_no_size(at: int, field: bytes) -> None:
    block = bytearray(raw_entry(b"a", 0))
    block[at : at + len(field)] = field
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    assert refused(seal_tar(bytes(block) + END)) == "tar"


def test_a_damaged_tar_header() -> None:
    block = bytearray(raw_entry(b"a", 0))
    block[0] ^= 1
    assert refused(seal_tar(bytes(block) + END)) == "tar"


def test_sizes_over_the_limits() -> None:
    assert refused(seal_tar(raw_entry(b"big", 5 << 30) + END)) == "big"
    assert refused(seal_tar(raw_entry(b"big", 1 << 61) + END)) == "big"
    data = hardware()
    assert refused(data, NeffLimits(members=3)) == "tar"
    assert refused(data, NeffLimits(unpacked_size=4096)) == "data"
    assert refused(data, NeffLimits(member_size=100)) == "sg00/weights.npy"


def pax(*records: bytes) -> bytes:
    content = b""
    for record in records:
        length = len(record) + 3
        length += len(str(length)) - 1
        content += b"%d %s\n" % (length, record)
    return raw_entry(b"PaxHeader", len(content), b"x", content)


@pytest.mark.parametrize(
    "extension",
    [
        pax(b"path=../escape"),
        pax(b"path=/etc/passwd"),
        pax(b"size=-1"),
        pax(b"size=99999999999999999999999999"),
        pax(b"linkpath=/etc/passwd"),
        pax(b"GNU.sparse.realsize=1099511627776"),
        pax(b"path=a\0b"),
        pax(b"path=b") + pax(b"path=c"),
        pax(*[b"a=b"] * 40),
        raw_entry(b"x", 5, b"x", b"99 a="),
        raw_entry(b"x", 4, b"x", b"0 a\n"),
        raw_entry(b"x", 3, b"x", b"abc"),
        raw_entry(b"x", 1 << 20, b"x", bytes(1 << 20)),
        raw_entry(b"L", 8, b"L", b"../../x\0"),
        raw_entry(b"g", 9, b"g", b"9 path=a\n"),
    ],
)
def test_hostile_extension_headers(extension: bytes) -> None:
    refused(seal_tar(extension + raw_entry(b"member", 0) + END))


def test_an_extension_header_that_extends_nothing() -> None:
    assert refused(seal_tar(pax(b"path=b") + END)) == "tar"


def _swap_aliases(parsed: dict[str, Any]) -> None:
    spec = parsed["outputs"][0]
    parsed["inputs"] = [spec, {**spec, "name": "second"}]
    parsed["outputs"] = [spec, {**spec, "name": "second"}]
    parsed["aliases"] = [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda m: b"", "manifest.json"),
        (lambda m: b"{", "manifest.json"),
        (lambda m: b"\xff\xfe", "manifest.json"),
        (lambda m: b"[" * 100_000, "manifest.json"),
        (lambda m: b'{"a":' * 100_000, "manifest.json"),
        (lambda m: b'{"schema_version":1,"schema_version":1}', "manifest.json"),
        (lambda m: json.dumps(m).replace("36", "NaN").encode(), "manifest.json"),
        (lambda m: json.dumps(m).replace("36", "9" * 5000).encode(), "manifest.json"),
        (lambda m: json.dumps(m).replace("36", "9" * 4000).encode(), "manifest.flops"),
        (lambda m: json.dumps(m).replace("36", "1e400").encode(), "manifest.flops"),
        (lambda m: [], "manifest.schema_version"),
        (lambda m: m.update(schema_version=2), "manifest.schema_version"),
        (lambda m: m.update(schema_version=True), "manifest.schema_version"),
        (lambda m: m.update(schema_version=1.0), "manifest.schema_version"),
        (lambda m: m.update(schema_version=[[[]]]), "manifest.schema_version"),
        (lambda m: m.update(extra=1), "manifest.extra"),
        (lambda m: m.pop("target") and None, "manifest.target"),
        (lambda m: m.update(target="trn2\n"), "manifest.target"),
        (lambda m: m.update(target=["trn2"]), "manifest.target"),
        (lambda m: m.update(name=""), "manifest.name"),
        (lambda m: m.update(name="\ud800"), "manifest.name"),
        (lambda m: m.update(name="\x1b[2J"), "manifest.name"),
        (lambda m: m.update(name="n" * 256), "manifest.name"),
        (lambda m: m.update(version="0.1.0"), "manifest.version"),
        (lambda m: m.update(producer="neuronx-cc"), "manifest.producer"),
        (lambda m: m.update(lnc=4), "manifest.lnc"),
        (lambda m: m.update(lnc=True), "manifest.lnc"),
        (lambda m: m.update(lnc="2"), "manifest.lnc"),
        (lambda m: m.update(opt_level=-1), "manifest.opt_level"),
        (lambda m: m.update(flops=-1), "manifest.flops"),
        (lambda m: m.update(flops=1.5), "manifest.flops"),
        (lambda m: m.update(flops={}), "manifest.flops"),
        (lambda m: m.update(inputs={}), "manifest.inputs"),
        (lambda m: m.update(inputs=[1]), "manifest.inputs"),
        (lambda m: m["inputs"].append(m["inputs"][0]), "manifest.inputs"),
        (lambda m: m["inputs"][0].pop("dtype") and None, "manifest.inputs.dtype"),
        (lambda m: m["inputs"][0].update(dtype="float4"), "manifest.inputs"),
        (lambda m: m["inputs"][0].update(shape=[-1]), "manifest.inputs"),
        (lambda m: m["inputs"][0].update(shape=[True]), "manifest.inputs"),
        (lambda m: m["inputs"][0].update(shape=[1] * 65), "manifest.inputs"),
        (lambda m: m["inputs"][0].update(shape=[1 << 40, 1 << 40]), "manifest.inputs"),
        (lambda m: m["inputs"][0].update(name=7), "manifest.inputs"),
        (lambda m: m.update(aliases=[[0, 9]]), "manifest.aliases"),
        (lambda m: m.update(aliases=[[-1, 0]]), "manifest.aliases"),
        (lambda m: m.update(aliases=[[0]]), "manifest.aliases"),
        (lambda m: m.update(aliases=[[0, 0, 0]]), "manifest.aliases"),
        (lambda m: m.update(aliases=[0]), "manifest.aliases"),
        (lambda m: m.update(aliases=[[0, 1]]), "manifest.aliases"),
        (lambda m: m.update(aliases=[[0, 0]] * 2), "manifest.aliases"),
        (lambda m: m.update(native=[]), "manifest.native"),
        (lambda m: m["native"].update(sha256="0" * 63), "manifest.native.sha256"),
        (lambda m: m["native"].update(size=-1), "manifest.native.size"),
        (lambda m: m["native"].update(cpu_features=["b", "a"]), "manifest.native.cpu_features"),
        (lambda m: m["native"].update(cpu_features=[[]]), "manifest.native.cpu_features"),
        (lambda m: m["native"].update(size=1), "native/xla_cpu.bin"),
        (lambda m: m.update(native=None), "native/xla_cpu.bin"),
        (lambda m: json.dumps(m).encode().ljust(2 << 20), "manifest.json"),
        (_swap_aliases, "manifest.aliases"),
    ],
)
def test_a_hostile_manifest_names_its_key(change: Any, field: str) -> None:
    assert refused(with_manifest(change)) == field


def test_members_that_the_manifest_does_not_call_for() -> None:
    assert refused(with_members(ours(), lambda m: m.update({"sg00/extra": b""}))) == "sg00/extra"
    assert refused(with_members(ours(), lambda m: m.pop("sg00/module.stablehlo"))) == "sg00/module.stablehlo"
    assert refused(with_members(ours(), lambda m: m.pop("native/xla_cpu.bin"))) == "native/xla_cpu.bin"


def test_a_swapped_native_part_is_never_handed_out() -> None:
    data = with_members(ours(), lambda m: m.update({"native/xla_cpu.bin": bytes(512)}))
    neff = read_neff(data)
    with pytest.raises(NeffError) as caught:
        _ = neff.native
    assert caught.value.field == "native/xla_cpu.bin"
    assert [f.field for f in verify_neff(data) if not f.ok] == ["native/xla_cpu.bin"]


def test_verify_reports_every_fault_at_once() -> None:
    data = seal(content_of(ours()), header_size=7, lnc_size=9, neff_version_major=99, hash=b"\1" * 32)
    failed = {finding.field for finding in verify_neff(data) if not finding.ok}
    assert failed >= {"header_size", "lnc_size", "neff_version_major", "hash", "name", "uuid"}


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (tmp_path / "missing", tmp_path, fifo, Path("/dev/zero"), tmp_path / ("n" * 300), "nul\0byte"):
        with pytest.raises(NeffAccessError) as caught:
            read_neff(path)
        assert caught.value.field == "file"
        assert caught.value.hint


def test_an_open_file_that_cannot_seek() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as pipe, os.fdopen(writing, "wb"), pytest.raises(NeffAccessError, match="seek"):
        read_neff(pipe)


def test_manifests_are_not_confused_by_threads() -> None:
    """One NEFF read from many threads at once: each pass has its own stream."""
    neff = read_neff(hardware())
    results: list[bytes] = []
    threads = [threading.Thread(target=lambda: results.append(neff.read("sg00/def.json"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(results)) == 1
    assert len(results) == 8


# The bombs run in a process of their own. Its peak memory is VmHWM: ru_maxrss would still show the parent's.
BOMB_READER = """
import re, sys, time
from pathlib import Path
from neuron_runtime.neff import NeffError, read_neff

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])

before, start = peak(), time.process_time()
try:
    read_neff(sys.argv[1])
    print("accepted", 0, 0)
except NeffError as error:
    print(error.field, peak() - before, time.process_time() - start)
"""


def _gzip(blocks: Any) -> bytes:
    packer = zlib.compressobj(1, wbits=31)
    return b"".join([packer.compress(block) for block in blocks] + [packer.flush()])


def _zeros(size: int) -> Any:
    block = bytes(1 << 20)
    return (block for _ in range(size >> 20))


def _gzip_bomb() -> bytes:
    """10 GiB of zeros in one member, from 64 MiB compressed once and repeated inside one deflate stream."""
    packer = zlib.compressobj(1, wbits=-15)
    head = packer.compress(raw_entry(b"zeros", 3 << 30)) + packer.flush(zlib.Z_FULL_FLUSH)
    run = packer.compress(bytes(64 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08\0\0\0\0\0\0\x03" + head + run * 160


def _hashed_names(count: int) -> Any:
    import hashlib

    for at in range(count):
        yield raw_entry(hashlib.sha256(b"%d" % at).hexdigest().encode(), 0)


def _json_bomb() -> bytes:
    content = (b"[" + b"[]," * 349_000 + b"0]").ljust(1 << 20)
    return raw_entry(b"manifest.json", len(content), content=content)


@pytest.mark.parametrize(
    ("content", "field", "mebibytes"),
    [
        (_gzip_bomb, "data", 8),
        (lambda: _gzip(raw_entry(b"m%d" % at, 0) for at in range(100_000)), "tar", 16),
        (lambda: _gzip(_hashed_names(60_000)), "tar", 16),
        (lambda: _gzip(pax(b"comment=%d" % at) for at in range(60_000)), "tar", 8),
        (lambda: _gzip(_zeros(256 << 20)), "tar", 8),
        # Parsed JSON takes some 25 times its text, hence the tight limit on the manifest's size.
        (lambda: _gzip([_json_bomb(), END]), "manifest.schema_version", 48),
    ],
    ids=["gzip-10GiB", "tar-members", "tar-members-incompressible", "pax-chain", "zero-padding", "json"],
)
def test_a_bomb_is_refused_in_little_memory_and_time(content: Any, field: str, mebibytes: int, tmp_path: Path) -> None:
    path = tmp_path / "bomb.neff"
    path.write_bytes(seal(content()))
    run = subprocess.run(
        [sys.executable, "-c", BOMB_READER, str(path)], capture_output=True, text=True, check=True, timeout=60
    )
    found, grown_kib, seconds = run.stdout.split()
    assert found == field
    assert int(grown_kib) < mebibytes << 10
    assert float(seconds) < 2.0
