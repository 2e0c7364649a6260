"""S3 as a place for objects and records: parts, lost and broken answers, and errors that say what to do."""

from __future__ import annotations

import datetime
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from s3_kit import Proxy, Server, client

from cache_server.backends import s3parts
from cache_server.backends.s3 import S3Backend
from cache_server.backends.s3bucket import S3Bucket
from cache_server.backends.s3errors import (
    ConditionError,
    ContendedError,
    InterruptedReadError,
    MissingObjectError,
    refused,
)
from cache_server.backends.s3options import S3Options
from cache_server.errors import CacheError, ConflictError, StoreError
from cache_server.leases.records import Versioned
from cache_server.leases.s3 import S3Records
from cache_server.storage import open_storage

MIB = 1 << 20
LARGE = bytes(range(256)) * (11 * MIB // 256) + b"end"
PART = 5 * MIB  # the least that S3 joins


@pytest.fixture
def bucket(s3_url: str) -> S3Bucket:
    return S3Bucket(s3_url, "root")


@pytest.fixture
def s3(moto: Server, aws: None) -> Iterator[Any]:
    s3 = client(moto.endpoint)
    yield s3
    s3.close()


def test_large_object_goes_up_and_comes_down_in_parts(bucket: S3Bucket) -> None:
    s3parts.put_in_parts(bucket, "large", LARGE, part=PART)
    size, etag = bucket.head("large") or (0, "")
    assert size == len(LARGE)
    assert etag.strip('"').endswith("-3")
    assert s3parts.get_in_parts(bucket, "large", size, etag, part=PART) == LARGE
    fetched = bucket.get("large", len(LARGE))
    assert fetched is not None
    assert fetched.data == LARGE


def test_large_blob_is_read_with_several_connections(bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"0123456789" * 4 * MIB
    backend = S3Backend(bucket, large=20 * MIB)
    backend.write("large", data)
    get, ranges = bucket.get, []

    def watched(path: str, limit: int, **conditions: Any) -> Any:
        ranges.append(conditions.get("Range"))
        return get(path, limit, **conditions)

    monkeypatch.setattr(bucket, "get", watched)
    assert backend.read("large", len(data)) == data
    assert len(ranges) == 3
    assert None not in ranges
    assert backend.read("missing", len(data)) is None


def test_object_replaced_between_its_parts_is_never_a_mixture(
    bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put("large", LARGE)
    size, old = bucket.head("large") or (0, "")
    new = LARGE[::-1]
    bucket.put("large", new)
    with pytest.raises(ConditionError):
        s3parts.get_in_parts(bucket, "large", size, old)
    monkeypatch.setattr(bucket, "head", lambda _: (size, old))
    assert S3Backend(bucket, large=MIB).read("large", size) == new


def test_upload_that_fails_leaves_neither_object_nor_parts(
    bucket: S3Bucket, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = bucket.call

    def failing(action: str, operation: str, path: str, **options: Any) -> Any:
        if operation == "upload_part" and options["PartNumber"] == 2:
            raise StoreError("the network is gone")
        return call(action, operation, path, **options)

    monkeypatch.setattr(bucket, "call", failing)
    with pytest.raises(StoreError, match="network is gone"):
        s3parts.put_in_parts(bucket, "large", LARGE, part=PART)
    assert bucket.head("large") is None
    assert s3.list_multipart_uploads(Bucket=bucket.bucket).get("Uploads", []) == []


def test_broken_off_content_is_fetched_again(proxy: Proxy, s3_url: str) -> None:
    bucket = S3Bucket(s3_url)
    bucket.put("a", LARGE)
    proxy.cut_answers = 2
    fetched = bucket.get("a", len(LARGE))
    assert proxy.cut_answers == 0
    assert fetched is not None
    assert fetched.data == LARGE


def test_content_that_keeps_breaking_off_is_an_error_and_not_a_short_object(proxy: Proxy, s3_url: str) -> None:
    bucket = S3Bucket(s3_url)
    bucket.put("a", LARGE)
    proxy.cut_answers = 100
    with pytest.raises(InterruptedReadError, match="breaks off"):
        bucket.get("a", len(LARGE))
    assert proxy.cut_answers == 97


def test_write_whose_answer_got_lost_is_known_for_ones_own(proxy: Proxy, s3_url: str) -> None:
    records = S3Records(S3Bucket(s3_url))
    proxy.lose_answers = 1
    first = records.create_exclusive("a", b"one")
    assert records.read("a") == Versioned(b"one", first)
    proxy.lose_answers = 1
    second = records.compare_and_swap("a", first, b"two")
    assert proxy.lose_answers == 0
    assert records.read("a") == Versioned(b"two", second)


def test_lease_survives_a_renewal_that_only_seemed_to_fail(proxy: Proxy, s3_url: str) -> None:
    """Else an owner that had one bad moment would take its own renewal for somebody's takeover."""
    records = S3Records(S3Bucket(s3_url))
    held = records.create_exclusive("a", b"one")
    proxy.lose_answers = 3
    with pytest.raises(StoreError):
        records.compare_and_swap("a", held, b"two")
    assert proxy.lose_answers == 0
    third = records.compare_and_swap("a", held, b"three")
    assert records.read("a") == Versioned(b"three", third)


def test_takeover_after_a_renewal_that_seemed_to_fail_is_noticed(proxy: Proxy, s3_url: str, moto: Server) -> None:
    records = S3Records(S3Bucket(s3_url))
    other = S3Records(S3Bucket(s3_url, options=S3Options(endpoint=moto.endpoint, addressing="path")))
    held = records.create_exclusive("a", b"one")
    proxy.lose_answers = 3
    with pytest.raises(StoreError):
        records.compare_and_swap("a", held, b"two")
    seen = other.read("a")
    assert seen is not None
    taken = other.compare_and_swap("a", seen.version, b"theirs")
    with pytest.raises(ConflictError):
        records.compare_and_swap("a", held, b"three")
    assert records.read("a") == Versioned(b"theirs", taken)


def test_equal_contents_have_different_versions(bucket: S3Bucket) -> None:
    """An ETag is a digest of the content on most servers, and a version must never come back."""
    records = S3Records(bucket)
    first = records.create_exclusive("a", b"same")
    second = records.compare_and_swap("a", first, b"same")
    assert first != second
    with pytest.raises(ConflictError):
        records.compare_and_swap("a", first, b"late")


def test_conflict_at_the_server_is_looked_at_and_tried_again(bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    put, refusals = bucket.put, [ContendedError("409"), ContendedError("409")]

    def contended(*arguments: Any, **conditions: Any) -> str:
        if refusals:
            raise refusals.pop()
        return put(*arguments, **conditions)

    monkeypatch.setattr(bucket, "put", contended)
    records = S3Records(bucket)
    assert records.read("a") is None
    version = records.create_exclusive("a", b"one")
    assert records.read("a") == Versioned(b"one", version)
    refusals.extend(ContendedError("409") for _ in range(100))
    with pytest.raises(ConflictError, match="keeps changing"):
        records.compare_and_swap("a", version, b"two")


def test_record_that_somebody_elses_hand_wrote_can_be_read_and_replaced(bucket: S3Bucket) -> None:
    bucket.put("leases/a", b"garbage")
    records = S3Records(bucket)
    seen = records.read("a")
    assert seen is not None
    assert seen.data == b"garbage"
    version = records.compare_and_swap("a", seen.version, b"mended")
    assert records.read("a") == Versioned(b"mended", version)


def test_walk_goes_on_after_a_page_and_keeps_to_its_folder(bucket: S3Bucket) -> None:
    names = ["a/1", "a/2/3", "a/ä", "a/b c+%20", "ab/1", "a"]
    for name in names:
        bucket.put(name, b"")
    assert sorted(bucket.walk("a", page=2)) == sorted(names[:4])


def test_missing_bucket_says_so(s3_url: str) -> None:
    store = open_storage("s3://no-such-bucket-here/x").store
    with pytest.raises(StoreError, match="has no such bucket") as caught:
        store.put_blob(b"x")
    assert "NEURON_ENV_CACHE_URL" in (caught.value.hint or "")
    with pytest.raises(StoreError, match="has no such bucket"):
        store.read_manifest("ab" * 32)


def test_missing_credentials_say_so(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(StoreError, match="without credentials") as caught:
        S3Bucket(s3_url).put("a", b"x")
    assert "AWS_PROFILE" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("code", "what", "hint"),
    [
        ("AccessDenied", "denies access", "s3:ListBucket"),
        ("403", "denies access", "s3:PutObject"),
        ("RequestTimeTooSkewed", "clock is wrong", "set the clock"),
        ("ExpiredToken", "have expired", "fresh credentials"),
        ("InvalidAccessKeyId", "does not know", "AWS_ACCESS_KEY_ID"),
        ("PermanentRedirect", "another region", "AWS_REGION"),
        ("SlowDown", "overloaded", "without it"),
    ],
)
def test_refusals_that_concern_the_place_read_the_same_for_every_object(code: str, what: str, hint: str) -> None:
    """The cache tells each message once, so an object's name in it would flood the log."""
    one, other = (refused("s3://b", "read", path, code, path) for path in ("one", "other"))
    assert one.message == other.message
    assert what in one.message
    assert hint in (one.hint or "")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("NoSuchKey", MissingObjectError),
        ("412", ConditionError),
        ("ConditionalRequestConflict", ContendedError),
        ("Unheard-of", StoreError),
    ],
)
def test_refusals_that_concern_an_object_name_it(code: str, kind: type[StoreError]) -> None:
    error = refused("s3://b", "read", "the/object", code, "text")
    assert type(error) is kind
    assert "cannot read the/object" in error.message


def test_missing_boto3_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch, aws: None) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(CacheError, match="boto3") as caught:
        open_storage("s3://bucket/x")
    assert "pip install 'neuron-env[s3]'" in (caught.value.hint or "")


def test_boto3_is_imported_at_the_first_request() -> None:
    program = (
        "import sys; from cache_server.storage import open_storage; open_storage('s3://bucket/x')\n"
        "sys.exit('boto3' in sys.modules or 'botocore' in sys.modules or 'asyncio' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_options_come_from_our_variables_then_from_those_of_the_aws_tools() -> None:
    environ = {"AWS_ENDPOINT_URL": "http://any", "AWS_DEFAULT_REGION": "eu-west-1"}
    options = S3Options.from_environment(environ)
    assert (options.endpoint, options.region, options.addressing) == ("http://any", "eu-west-1", "path")
    environ |= {
        "AWS_ENDPOINT_URL_S3": "http://s3",
        "AWS_REGION": "eu-west-2",
        "NEURON_ENV_CACHE_S3_ADDRESSING": "virtual",
        "NEURON_ENV_CACHE_S3_TIMEOUT": "2",
    }
    options = S3Options.from_environment(environ)
    assert options == S3Options("http://s3", "eu-west-2", "virtual", 2.0)
    assert S3Options.from_environment({**environ, "NEURON_ENV_CACHE_S3_ENDPOINT": "https://ours"}).endpoint == (
        "https://ours"
    )
    assert S3Options.from_environment({}) == S3Options(None, None, "virtual", 5.0)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("NEURON_ENV_CACHE_S3_ADDRESSING", "dns"),
        ("NEURON_ENV_CACHE_S3_TIMEOUT", "soon"),
        ("NEURON_ENV_CACHE_S3_TIMEOUT", "0"),
        ("NEURON_ENV_CACHE_S3_TIMEOUT", "nan"),
        ("NEURON_ENV_CACHE_S3_ENDPOINT", "minio:9000"),
    ],
)
def test_setting_that_makes_no_sense_is_refused_by_its_name(variable: str, value: str) -> None:
    with pytest.raises(CacheError) as caught:
        S3Options.from_environment({variable: value})
    assert variable in f"{caught.value.message} {caught.value.hint}"


def certificate(place: Path) -> Path:
    """A file with a key and the certificate for 127.0.0.1 that it signed itself."""
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a test's authority")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    place.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + signed.public_bytes(pem)
    )
    return place


def test_server_of_a_private_authority_is_trusted_when_told_to(
    moto: Server, s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem = certificate(tmp_path / "pem")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pem)
    proxy = Proxy(moto.port, tls)
    try:
        monkeypatch.setenv("NEURON_ENV_CACHE_S3_ENDPOINT", proxy.endpoint)
        with pytest.raises(StoreError, match="cannot be trusted") as caught:
            S3Bucket(s3_url).put("a", b"x")
        assert "AWS_CA_BUNDLE" in (caught.value.hint or "")
        monkeypatch.setenv("AWS_CA_BUNDLE", str(pem))
        assert S3Bucket(s3_url).put("a", b"x")
    finally:
        proxy.close()
