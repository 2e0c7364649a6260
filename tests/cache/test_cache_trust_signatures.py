"""A signature covers everything that a reader takes from a manifest, and only a trusted key's will do."""

from __future__ import annotations

import base64
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cache_kit import parts
from hypothesis import given
from hypothesis import strategies as st
from trust_kit import Fleet, manifest_of

from cache_server import CacheSettings
from cache_server.errors import CacheError
from cache_server.leases.owner import Owner
from cache_server.leases.record import LeaseRecord, State, decode_record
from cache_server.manifest import Blob, Failure, Manifest, Signature, decode_manifest
from cache_server.trust.keys import PublicKey, SigningKey, parse_trusted_keys
from cache_server.trust.signatures import Signer, Standing, Trust, Verifier, signed_bytes
from neuron_runtime.compiler.errors import FailureKind

KEY, OTHER = SigningKey.generate(), SigningKey.generate()
NEFF = manifest_of(Blob("ab" * 32, 5))
FAILURE = replace(NEFF, files={}, failure=Failure(FailureKind.COMPILER_ERROR, "no such op", 4600.0))
SIGNER = Signer(KEY, clock=lambda: 2000.0)


def verifier(*keys: PublicKey, required: bool = True) -> Verifier:
    return Verifier(keys or (KEY.public,), required=required)


@pytest.mark.parametrize("manifest", [NEFF, FAILURE], ids=["neff", "failure"])
def test_signed_manifest_survives_its_bytes_alone_and_in_a_lease_record(manifest: Manifest) -> None:
    signed = SIGNER.sign(manifest, "ns")
    read = decode_manifest(signed.encode(), key=signed.key)
    record = LeaseRecord(State.HELD, 1, "t", Owner("h", 7, "u"), 15.0, "x", 1000.0).published(signed)
    settled = decode_record(record.encode(), key=signed.key).settled
    assert read == settled == signed
    assert settled is not None
    assert verifier().standing(read, "ns") is verifier().standing(settled, "ns") is Standing.TRUSTED


def test_whole_numbers_sign_like_the_same_numbers_read_back() -> None:
    manifest = replace(NEFF, created_at=1000, producer=replace(NEFF.producer, started_at=5, compile_seconds=7))
    signed = SIGNER.sign(manifest, "ns")
    assert verifier().trusts(decode_manifest(signed.encode(), key=signed.key), "ns")


CHANGES: list[dict[str, Any]] = [
    {"files": {"module.neff": Blob("cd" * 32, 5)}},
    {"files": {"module.neff": Blob("ab" * 32, 6)}},
    {"files": {**NEFF.files, "more": Blob("cd" * 32, 1)}},
    {"epoch": 2},
    {"created_at": NEFF.created_at + 1},
    {"label": "another"},
    {"parts": parts("another")},
    {"producer": replace(NEFF.producer, host="another")},
    {"producer": replace(NEFF.producer, compile_seconds=1e6)},
    {"failure": FAILURE.failure},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_every_field_is_covered(change: dict[str, Any]) -> None:
    signed = SIGNER.sign(NEFF, "ns")
    assert verifier().standing(replace(signed, **change), "ns") is Standing.FORGED


def test_no_field_of_a_manifest_is_left_out() -> None:
    assert {*NEFF.__dataclass_fields__} == {name for change in CHANGES for name in change} | {"signature"}


def test_time_of_signing_and_namespace_are_covered() -> None:
    signed = SIGNER.sign(NEFF, "ns")
    assert signed.signature is not None
    later = replace(signed, signature=replace(signed.signature, signed_at=2001.0))
    assert verifier().standing(later, "ns") is Standing.FORGED
    assert verifier().standing(signed, "another") is Standing.FORGED


def test_signature_of_the_same_bytes_for_another_purpose_is_none() -> None:
    data = signed_bytes(NEFF, "ns", 2000.0).partition(b"\0")[2]
    value = base64.b64encode(KEY.sign(data)).decode()
    forged = replace(NEFF, signature=Signature(KEY.public.key_id, 2000.0, value))
    assert verifier().standing(forged, "ns") is Standing.FORGED


@pytest.mark.parametrize("value", ["", "AAAA", "=" * 88, "é", "A" * 88, "A" * 200])
def test_damaged_value_is_a_forgery_not_a_crash(value: str) -> None:
    forged = replace(NEFF, signature=Signature(KEY.public.key_id, 2000.0, value))
    assert verifier().standing(forged, "ns") is Standing.FORGED


def test_text_that_no_encoding_holds_is_a_forgery_not_a_crash() -> None:
    signed = SIGNER.sign(NEFF, "ns")
    data = json.dumps({**signed.to_json(), "label": "\ud800"}).encode()
    assert verifier().standing(decode_manifest(data, key=signed.key), "ns") is Standing.FORGED


@pytest.mark.parametrize(
    "signature",
    [None, "later", {}, [], {"key_id": "x"}, {"key_id": "x", "signed_at": -1, "value": "x"}, {"key_id": 1}],
)
def test_signature_of_an_unknown_form_is_none(signature: object) -> None:
    read = decode_manifest(json.dumps({**NEFF.to_json(), "signature": signature}).encode(), key=NEFF.key)
    assert read == NEFF
    assert verifier().standing(read, "ns") is Standing.UNSIGNED


@given(st.binary(min_size=64, max_size=64))
def test_no_made_up_signature_verifies(value: bytes) -> None:
    forged = replace(NEFF, signature=Signature(KEY.public.key_id, 2000.0, base64.b64encode(value).decode()))
    assert verifier().standing(forged, "ns") is Standing.FORGED


@pytest.mark.parametrize(
    ("manifest", "if_required", "else_"),
    [
        (SIGNER.sign(NEFF, "ns"), True, True),
        (NEFF, False, True),
        (Signer(OTHER).sign(NEFF, "ns"), False, True),
        (SIGNER.sign(NEFF, "another"), False, False),
    ],
    ids=["trusted", "unsigned", "unknown key", "forged"],
)
def test_what_a_reader_takes(manifest: Manifest, if_required: bool, else_: bool) -> None:
    assert verifier().accepts(manifest, "ns", "url") is if_required
    assert verifier(required=False).accepts(manifest, "ns", "url") is else_


def test_keys_rotate_by_trusting_both_for_a_while() -> None:
    both = verifier(KEY.public, OTHER.public)
    assert both.trusts(SIGNER.sign(NEFF, "ns"), "ns")
    assert both.trusts(Signer(OTHER).sign(NEFF, "ns"), "ns")


def test_key_with_the_name_of_a_trusted_one_is_not_that_one() -> None:
    other = Signer(OTHER).sign(NEFF, "ns")
    assert other.signature is not None
    renamed = replace(other, signature=replace(other.signature, key_id=KEY.public.key_id))
    assert verifier().standing(renamed, "ns") is Standing.FORGED


def test_what_was_signed_before_a_key_is_trusted_from_is_refused() -> None:
    signed = SIGNER.sign(NEFF, "ns")
    assert verifier(replace(KEY.public, not_before=2000.0)).trusts(signed, "ns")
    late = verifier(replace(KEY.public, not_before=2000.5))
    assert late.standing(signed, "ns") is Standing.TOO_OLD
    assert "1970-01-01 00:33:20 UTC" in (late.objection(signed, "ns") or "")


def test_refusal_is_told_once_for_each_key_and_host_and_counted_always(caplog: pytest.LogCaptureFixture) -> None:
    judge = verifier()
    other = Signer(OTHER).sign(manifest_of(Blob("ab" * 32, 5), host="host\nforged line"), "ns")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert not judge.accepts(other, "ns", "file:///store")
        assert not judge.accepts(NEFF, "ns", "file:///store")
    assert judge.refused == 4
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert OTHER.public.key_id in told[0]
    assert "host\\nforged line" in told[0]
    assert "unsigned" in told[1]


def test_settings_make_what_is_asked_for(tmp_path: Path) -> None:
    KEY.save(tmp_path / "key.pem")
    trusted = tmp_path / "trusted"
    trusted.write_text(f"# the fleet's\n\n{OTHER.public.text}  # next\n")
    settings = CacheSettings.from_environment(
        {
            "NEURON_ENV_CACHE_URL": str(tmp_path),
            "NEURON_ENV_CACHE_LOCAL_DIR": str(tmp_path / "local"),
            "NEURON_ENV_CACHE_TRUSTED_KEYS": str(trusted),
            "NEURON_ENV_CACHE_REQUIRE_SIGNATURE": "1",
            "NEURON_ENV_CACHE_SIGNING_KEY": str(tmp_path / "key.pem"),
        }
    )
    trust = settings.trust()
    assert trust is not None
    assert trust.signer is not None
    assert trust.verifier is not None
    assert trust.verifier.required
    assert trust.verifier.trusts(trust.signer.sign(NEFF, "ns"), "ns")
    assert trust.verifier.trusts(Signer(OTHER).sign(NEFF, "ns"), "ns")


def test_without_settings_nothing_is_signed_or_verified() -> None:
    assert Trust.of(trusted_keys=None, required=False, signing_key=None) is None


def test_requiring_signatures_of_nobody_is_refused() -> None:
    with pytest.raises(CacheError, match="no key is trusted"):
        Trust.of(trusted_keys=None, required=True, signing_key=None)


def test_key_file_is_private_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    KEY.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert SigningKey.load(path).public == KEY.public
    with pytest.raises(CacheError, match="exists"):
        OTHER.save(path)
    assert SigningKey.load(path).public == KEY.public


def test_key_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    KEY.save(path)
    path.chmod(0o640)
    with pytest.raises(CacheError, match="open to others") as caught:
        SigningKey.load(path)
    assert "chmod 600" in (caught.value.hint or "")


@pytest.mark.parametrize("content", [b"", b"no key", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"])
def test_file_without_a_key_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(CacheError, match=r"key\.pem holds no"):
        SigningKey.load(path)


def test_private_half_is_not_shown() -> None:
    assert repr(KEY) == f"SigningKey({KEY.public.key_id})"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("ed25519:AAAA", "3 bytes"),
        ("ed25519:!", "no public key"),
        ("/no/such/file", "cannot be read"),
        ("", "cannot be read"),
    ],
)
def test_trusted_keys_that_make_no_sense_are_named(text: str, what: str) -> None:
    with pytest.raises(CacheError, match=what):
        parse_trusted_keys(text)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("rsa:AAAA", "line 2"),
        (f"{KEY.public.text} not-after=2026-01-01", "not-after"),
        (KEY.public.text + " not-before=x", "x"),
    ],
    ids=["algorithm", "not-after", "not-before"],
)
def test_trusted_keys_file_names_its_bad_line(tmp_path: Path, line: str, what: str) -> None:
    path = tmp_path / "trusted"
    path.write_text(f"{OTHER.public.text}\n{line}\n")
    with pytest.raises(CacheError, match=what):
        parse_trusted_keys(str(path))


def test_trusted_keys_may_stand_in_the_setting_itself() -> None:
    keys = parse_trusted_keys(f"{KEY.public.text},{OTHER.public.text}")
    assert keys == (KEY.public, OTHER.public)


def test_not_before_is_a_date_in_utc(tmp_path: Path) -> None:
    path = tmp_path / "trusted"
    path.write_text(
        f"{KEY.public.text} not-before=1970-01-02 # rotated\n{OTHER.public.text} not-before=1970-01-01T01:00:00+01:00"
    )
    assert [key.not_before for key in parse_trusted_keys(str(path))] == [86400.0, 0.0]


def test_what_this_process_signs_it_signs_once(tmp_path: Path) -> None:
    store = Fleet(tmp_path).service()
    signed = store.signed(NEFF)
    assert store.signed(signed) is signed
