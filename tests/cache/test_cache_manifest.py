"""Manifests and lease records that others wrote are read strictly, or not at all."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest
from cache_kit import parts
from hypothesis import given
from hypothesis import strategies as st

from cache_server.leases.owner import Owner
from cache_server.leases.record import LeaseRecord, State, decode_record
from cache_server.manifest import (
    MANIFEST_LIMIT,
    Blob,
    Failure,
    Manifest,
    Producer,
    UnknownSchemaError,
    decode_manifest,
)
from neuron_runtime.compiler.errors import FailureKind

PRODUCER = Producer("host", 7, "user", "cc 2.0", 1000.0, 12.5)
NEFF = Manifest(parts(), {"module.neff": Blob("ab" * 32, 5)}, 3, PRODUCER, 1012.5, "the graph")
FAILURE = replace(NEFF, files={}, failure=Failure(FailureKind.COMPILER_ERROR, "no such op", 4600.0))
RECORD = LeaseRecord(State.HELD, 3, "token", Owner("host", 7, "user", "boot/pid:[1]/9"), 15.0, "compiling", 1000.0)
KEY = NEFF.key


@pytest.mark.parametrize("manifest", [NEFF, FAILURE], ids=["neff", "failure"])
def test_manifest_survives_its_bytes(manifest: Manifest) -> None:
    assert decode_manifest(manifest.encode(), key=KEY) == manifest
    assert decode_manifest(manifest.encode(), key=KEY).encode() == manifest.encode()


@pytest.mark.parametrize(
    "record", [RECORD, RECORD.published(NEFF), RECORD.published(FAILURE), RECORD.released("why").renewed("x")]
)
def test_record_survives_its_bytes(record: LeaseRecord) -> None:
    assert decode_record(record.encode(), key=KEY) == record


def test_unknown_fields_are_left_to_later_versions() -> None:
    value = {**NEFF.to_json(), "signature": "later"}
    assert decode_manifest(json.dumps(value).encode(), key=KEY) == NEFF


def test_later_schema_is_told_apart_from_damage() -> None:
    with pytest.raises(UnknownSchemaError):
        decode_manifest(json.dumps({**NEFF.to_json(), "schema": 2}).encode(), key=KEY)


def test_manifest_of_another_key_is_refused() -> None:
    with pytest.raises(ValueError, match="do not belong to this key"):
        decode_manifest(NEFF.encode(), key=parts("other").key)


def test_parts_must_hash_to_the_key() -> None:
    value = NEFF.to_json()
    value["parts"] = parts(lnc=1).to_json()
    with pytest.raises(ValueError, match="do not belong to this key"):
        decode_manifest(json.dumps(value).encode(), key=KEY)


BROKEN: list[tuple[str, Any, str]] = [
    ("kind", "neither", "kind"),
    ("epoch", -1, "epoch"),
    ("epoch", True, "epoch"),
    ("epoch", 1.5, "epoch"),
    ("files", {}, "module.neff"),
    ("files", [], "files"),
    ("files", {"module.neff": {"sha256": "../../x", "size": 1}}, "SHA-256"),
    ("files", {"module.neff": {"sha256": "AB" * 32, "size": 1}}, "SHA-256"),
    ("files", {"module.neff": {"sha256": "ab" * 32, "size": -1}}, "size"),
    ("files", {"module.neff": {"sha256": "ab" * 32, "size": 1 << 60}}, "size"),
    ("files", {str(n): {"sha256": "ab" * 32, "size": 1} for n in range(65)}, "files"),
    ("created_at", "now", "created_at"),
    ("created_at", 1e300, "created_at"),
    ("label", "x" * 201, "label"),
    ("producer", None, "producer"),
    ("parts", "x", "parts"),
]


@pytest.mark.parametrize(("field", "value", "named"), BROKEN)
def test_broken_field_is_named(field: str, value: Any, named: str) -> None:
    data = json.dumps({**NEFF.to_json(), field: value}).encode()
    with pytest.raises(ValueError, match=named):
        decode_manifest(data, key=KEY)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 100,
        b"null",
        b"[" * 100_000,
        b'{"schema": NaN}',
        b'{"schema": ' + b"9" * 5000 + b"}",
        b" " * (MANIFEST_LIMIT + 1),
        b"\xff\xfe",
    ],
    ids=["empty", "zeros", "null", "deep", "nan", "long-number", "too-long", "not-utf8"],
)
def test_garbage_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        decode_manifest(data, key=KEY)
    with pytest.raises(ValueError):
        decode_record(data, key=KEY)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


@given(field=st.sampled_from(sorted(NEFF.to_json())), value=JSON, original=st.sampled_from([NEFF, FAILURE]))
def test_any_field_value_is_read_or_refused(field: str, value: Any, original: Manifest) -> None:
    data = json.dumps({**original.to_json(), field: value}).encode()
    with contextlib.suppress(ValueError):
        assert decode_manifest(data, key=KEY).key == KEY


@given(position=st.integers(0, 2000), byte=st.integers(0, 255), cut=st.integers(0, 2000))
def test_any_damage_is_read_or_refused(position: int, byte: int, cut: int) -> None:
    data = bytearray(RECORD.published(NEFF).encode())
    data[position % len(data)] = byte
    with contextlib.suppress(ValueError):
        decode_record(bytes(data[: len(data) - cut % len(data)]), key=KEY)


def test_long_compiler_messages_keep_their_end() -> None:
    text = "x" * 100_000 + "the error"
    manifest = replace(FAILURE, failure=Failure(FailureKind.COMPILER_ERROR, text, 4600.0))
    read = decode_manifest(manifest.encode(), key=KEY)
    assert read.failure is not None
    assert read.failure.text.endswith("the error")
    assert len(manifest.encode()) < 50_000
