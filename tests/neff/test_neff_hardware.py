"""NEFFs that were not made here, built from the published layout."""

from __future__ import annotations

import tarfile

import pytest
from neff_samples import END, HARDWARE_MEMBERS, entry, hardware, raw_entry, seal_tar, tar

from neuron_runtime.neff import NeffAccessError, NeffError, read_neff, unpack_neff, verify_neff


@pytest.mark.parametrize(
    ("digest", "padding"), [("sha256", b""), ("md5", b"\0"), ("md5", b"0")], ids=["sha256", "md5-nul", "md5-zero"]
)
@pytest.mark.parametrize("packed", [True, False], ids=["gzip", "plain"])
@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT], ids=["gnu", "pax"])
def test_header_members_and_digest_are_read(digest: str, padding: bytes, packed: bool, form: int) -> None:
    data = hardware(digest=digest, padding=padding, packed=packed, form=form)
    neff = read_neff(data)
    assert not neff.simulated
    assert neff.manifest is None
    assert neff.native is None
    assert neff.header.hash_algorithm == digest
    assert {m.name: m.size for m in neff.members} == {name: len(c) for name, c in HARDWARE_MEMBERS.items()}
    assert neff.read("sg00/def.json") == HARDWARE_MEMBERS["sg00/def.json"]
    assert all(finding.ok for finding in verify_neff(data))


def test_its_stablehlo_is_refused_with_a_reason() -> None:
    with pytest.raises(NeffAccessError, match="made for hardware"):
        _ = read_neff(hardware()).stablehlo


def test_a_missing_member_is_named() -> None:
    with pytest.raises(NeffAccessError, match=r"sg07/def\.json") as caught:
        read_neff(hardware()).read("sg07/def.json")
    assert caught.value.field == "sg07/def.json"


@pytest.mark.parametrize("lnc", [0, 1, 2])
def test_neffs_older_than_logical_cores_are_read(lnc: int) -> None:
    assert read_neff(hardware(lnc_size=lnc)).header.lnc_size == lnc


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_long_names_are_read_in_each_dialect(form: int) -> None:
    name = "sg00/" + "/".join(["weights" * 4] * 5) + "/" + "w" * 60 + ".npy"
    neff = read_neff(seal_tar(tar([entry(name, b"npy")], form)))
    assert [member.name for member in neff.members] == [name]
    assert neff.read(name) == b"npy"


def test_an_archive_of_the_current_folder_is_read(tmp_path) -> None:  # type: ignore[no-untyped-def]
    folder = {"type": tarfile.DIRTYPE}
    archive = tar([entry("./", **folder), entry("./neff.json", b"{}"), entry("./sg00/", **folder)])
    data = seal_tar(archive)
    assert [member.name for member in read_neff(data).members] == ["neff.json"]
    unpack_neff(data, tmp_path)
    assert (tmp_path / "neff.json").read_bytes() == b"{}"


def test_an_old_style_folder_entry_is_a_folder() -> None:
    archive = raw_entry(b"sg00/", kind=b"\0") + raw_entry(b"sg00/def.json", 2, b"\0", b"{}") + END
    assert [member.name for member in read_neff(seal_tar(archive)).members] == ["sg00/def.json"]


def test_a_wrong_digest_of_either_kind_is_refused() -> None:
    for padding in (bytes(16), b"0" * 16, b"x" * 16):
        with pytest.raises(NeffError) as caught:
            read_neff(hardware(digest="md5", padding=b"", hash=b"d" * 16 + padding))
        assert caught.value.field == "hash"


def test_texts_of_a_foreign_header_are_safe_to_print() -> None:
    data = bytearray(hardware())
    data[0xDC : 0xDC + 8] = b"\x1b[2J\xff\n\0x"
    name = read_neff(bytes(data)).header.name
    assert name.isprintable()
    assert "\\x1b" in name
