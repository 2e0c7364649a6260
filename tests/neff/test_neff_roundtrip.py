"""What is written is read back, equal input gives equal bytes, and every changed bit is noticed."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from neff_samples import NATIVE, STABLEHLO, archive_of, manifest, ours

from neuron_runtime.neff import (
    HEADER_SIZE,
    NATIVE_MEMBER,
    NativePart,
    NeffAccessError,
    NeffError,
    NeffHeader,
    NeffManifest,
    read_neff,
    unpack_neff,
    verify_neff,
    write_neff,
)
from neuron_runtime.tensors import ITEMSIZE, TensorSpec


def test_reading_gives_what_was_written() -> None:
    neff = read_neff(ours())
    assert neff.manifest == manifest()
    assert neff.stablehlo == STABLEHLO
    assert neff.native == NATIVE
    assert neff.simulated
    assert [member.name for member in neff.members] == [
        "manifest.json",
        "native/xla_cpu.bin",
        "sg00/module.stablehlo",
    ]
    assert neff.header.name == "block"
    assert neff.header.neff_build_version == "0.1.0+sim"
    assert neff.header.lnc_size == 2


def test_a_neff_without_native_part_has_none() -> None:
    neff = read_neff(ours(native=False))
    assert neff.native is None
    assert neff.manifest is not None
    assert neff.manifest.native is None
    assert neff.stablehlo == STABLEHLO


@pytest.mark.parametrize("kind", ["bytes", "bytearray", "memoryview", "path", "str", "file", "file at an offset"])
def test_every_kind_of_source_reads_alike(kind: str, tmp_path: Path) -> None:
    data = ours()
    path = tmp_path / "a.neff"
    path.write_bytes(data)
    offset = io.BytesIO(b"before" + data)
    offset.seek(6)
    source = {
        "bytes": data,
        "bytearray": bytearray(data),
        "memoryview": memoryview(data),
        "path": path,
        "str": str(path),
        "file": io.BytesIO(data),
        "file at an offset": offset,
    }[kind]
    neff = read_neff(source)  # type: ignore[arg-type]
    assert neff.read(NATIVE_MEMBER) == NATIVE
    assert neff.size == len(data)


def test_a_file_too_large_to_hold_is_read_in_passes(tmp_path: Path) -> None:
    native = hashlib.shake_256(b"incompressible").digest(9 << 20)
    part = NativePart.describe(native, format="xla_cpu/test", cpu_features=())
    path = tmp_path / "large.neff"
    path.write_bytes(write_neff(manifest(native=part), STABLEHLO, native))
    neff = read_neff(path)
    assert neff.native == native
    assert neff.stablehlo == STABLEHLO
    assert all(finding.ok for finding in verify_neff(path))
    path.write_bytes(ours())
    with pytest.raises(NeffAccessError, match="changed while it was being read"):
        neff.read(NATIVE_MEMBER)


def test_equal_input_gives_equal_bytes_in_another_process() -> None:
    program = "import sys, neff_samples; sys.stdout.buffer.write(neff_samples.ours())"
    outputs = [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=Path(__file__).parent,
            env={"PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONHASHSEED": seed, "TZ": zone},
            capture_output=True,
            check=True,
        ).stdout
        for seed, zone in (("1", "UTC"), ("2", "Asia/Tokyo"))
    ]
    assert outputs == [ours(), ours()]


def test_the_archive_holds_no_time_owner_or_name_of_the_writer() -> None:
    import tarfile

    with tarfile.open(fileobj=io.BytesIO(archive_of(ours()))) as archive:
        for info in archive.getmembers():
            assert (info.mtime, info.uid, info.gid, info.uname, info.gname, info.mode) == (0, 0, 0, "", "", 0o644)
    assert ours()[HEADER_SIZE + 4 : HEADER_SIZE + 8] == bytes(4), "gzip mtime"


def test_the_uuid_follows_the_content_and_not_the_native_part() -> None:
    def uuid(neff: bytes) -> bytes:
        return NeffHeader.unpack(neff).uuid

    assert uuid(ours()) == uuid(ours(native=False))
    assert uuid(ours()) != uuid(write_neff(manifest(native=None), STABLEHLO + b" "))
    assert uuid(ours()) != uuid(write_neff(manifest(native=None, lnc=1), STABLEHLO))
    text = NeffHeader.unpack(ours()).uuid_text
    assert (len(text), text[14]) == (36, "8")
    assert text[19] in "89ab"


def test_every_flipped_bit_is_noticed() -> None:
    data = ours()
    sample = [*range(HEADER_SIZE), *range(HEADER_SIZE, len(data), 37)]
    for at in sample:
        changed = bytearray(data)
        changed[at] ^= 1 << (at % 8)
        assert not all(finding.ok for finding in verify_neff(bytes(changed))), f"byte {at}"
        if not 0xCC <= at < 0xDC:  # the uuid costs a second digest, so only `verify` recomputes it
            with pytest.raises(NeffError):
                read_neff(bytes(changed))


def test_every_truncation_is_noticed() -> None:
    data = ours()
    for size in range(0, len(data), 13):
        with pytest.raises(NeffError) as caught:
            read_neff(data[:size])
        assert caught.value.field == ("header" if size < HEADER_SIZE else "data_size")
        assert not all(finding.ok for finding in verify_neff(data[:size]))


def test_a_native_part_must_be_the_one_described() -> None:
    with pytest.raises(NeffError, match="another native part") as caught:
        write_neff(manifest(), STABLEHLO, NATIVE + b"x")
    assert caught.value.field == "manifest.native"
    with pytest.raises(NeffError, match="none is given"):
        write_neff(manifest(), STABLEHLO)
    with pytest.raises(NeffError, match="does not describe"):
        write_neff(manifest(native=None), STABLEHLO, NATIVE)


def test_a_header_packs_to_the_bytes_it_came_from() -> None:
    raw = ours()[:HEADER_SIZE]
    assert NeffHeader.unpack(raw).pack() == raw


def test_header_fields_lie_at_their_published_offsets() -> None:
    header = NeffHeader(
        pkg_version=0x0101,
        data_size=0x0303,
        neff_version_major=0x04,
        neff_version_minor=0x05,
        neff_build_version="build",
        num_tpb=0x0606,
        hash=b"h" * 32,
        uuid=b"u" * 16,
        name="name",
        requested_tpb_count=0x0707,
        tpb_per_node=b"t" * 64,
        feature_bits=0x0808,
        lnc_size=2,
    )
    raw = header.pack()
    for offset, value in {
        0x000: (0x0101).to_bytes(8, "little"),
        0x008: (1024).to_bytes(8, "little"),
        0x010: (0x0303).to_bytes(8, "little"),
        0x018: (4).to_bytes(8, "little"),
        0x020: (5).to_bytes(8, "little"),
        0x028: b"build\0",
        0x0A8: (0x0606).to_bytes(4, "little"),
        0x0AC: b"h" * 32,
        0x0CC: b"u" * 16,
        0x0DC: b"name\0",
        0x1DC: (0x0707).to_bytes(4, "little"),
        0x1E0: b"t" * 64,
        0x220: (0x0808).to_bytes(8, "little"),
        0x228: (2).to_bytes(4, "little"),
        0x22C: bytes(468),
    }.items():
        assert raw[offset : offset + len(value)] == value, hex(offset)
    assert len(raw) == HEADER_SIZE


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "n" * 256),
        ("name", "tab\there"),
        ("neff_build_version", "v" * 128),
        ("hash", b"short"),
        ("uuid", b""),
        ("tpb_per_node", bytes(65)),
    ],
)
def test_a_header_value_that_does_not_fit_names_its_field(field: str, value: object) -> None:
    header = replace(NeffHeader.unpack(ours()), **{field: value})  # type: ignore[arg-type]
    with pytest.raises(NeffError) as caught:
        header.pack()
    assert caught.value.field == field


NAMES = st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=20)
SPECS = st.builds(
    TensorSpec, NAMES, st.lists(st.integers(0, 1 << 20), max_size=3).map(tuple), st.sampled_from(sorted(ITEMSIZE))
)
SPEC_LISTS = st.lists(SPECS, max_size=5, unique_by=lambda spec: spec.name).map(tuple)


@given(NAMES, SPEC_LISTS, SPEC_LISTS, st.sampled_from([1, 2]), st.integers(0, 1 << 62), st.binary(max_size=2000))
def test_any_manifest_survives_the_round_trip(
    name: str,
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    lnc: int,
    flops: int,
    stablehlo: bytes,
) -> None:
    written = manifest(name=name, inputs=inputs, outputs=outputs, lnc=lnc, flops=flops, aliases=(), native=None)
    assert NeffManifest.loads(written.dumps()) == written
    neff = read_neff(write_neff(written, stablehlo))
    assert neff.manifest == written
    assert neff.stablehlo == stablehlo


def test_unpacking_writes_each_member_with_plain_modes(tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder"
    unpack_neff(ours(), target)
    files = {str(p.relative_to(target)): p for p in target.rglob("*") if p.is_file()}
    assert files.keys() == {"manifest.json", "native/xla_cpu.bin", "sg00/module.stablehlo"}
    assert files["sg00/module.stablehlo"].read_bytes() == STABLEHLO
    assert all(path.stat().st_mode & 0o777 == 0o644 for path in files.values())


def test_unpacking_refuses_a_folder_that_holds_anything(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep")
    with pytest.raises(NeffAccessError, match="not empty"):
        unpack_neff(ours(), tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int, mode: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("neuron_runtime.neff.unpack.os.fchmod", fail)
    with pytest.raises(NeffAccessError, match="No space left on device"):
        unpack_neff(ours(), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_errors_survive_pickling() -> None:
    import pickle

    for error in (NeffError("hash", "wrong", hint="fetch it again"), NeffAccessError("file", "gone")):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), copy.field, str(copy), copy.hint) == (type(error), error.field, str(error), error.hint)
