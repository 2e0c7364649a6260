"""Tokens are shown once, kept as hashes, and end when somebody says so."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from cache_server.errors import CacheError
from cache_server.storage import open_storage
from cache_server.trust.audit import AuditLog
from cache_server.trust.certificates import CertificateRules, subject_names
from cache_server.trust.principal import Principal, Scope, namespaces_of
from cache_server.trust.throttle import FailureLimit
from cache_server.trust.tokens import Token, TokenBook, TokenRecord, decode_token_record

NOW = 1000.0


@pytest.fixture
def book(tmp_path: Path) -> TokenBook:
    return TokenBook(open_storage(str(tmp_path / "store")).store.backend)


def make(book: TokenBook, name: str = "ci", scope: Scope = Scope.WRITE, **options: object) -> tuple[Token, TokenRecord]:
    return book.create(name, scope, None, now=NOW, created_by="me", **options)  # type: ignore[arg-type]


def test_token_is_found_again_by_its_text_alone(book: TokenBook) -> None:
    token, record = make(book)
    again = Token.parse(token.reveal())
    assert again is not None
    found = book.find(again.token_id)
    assert found == record
    assert found.matches(again)
    assert found.state(NOW) == "valid"
    assert found.principal == Principal("token:ci", Scope.WRITE)


def test_secret_is_nowhere_in_the_store(book: TokenBook, tmp_path: Path) -> None:
    token, _ = make(book)
    secret = token.reveal().rpartition("_")[2]
    files = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if secret.encode() in path.read_bytes()]


def test_secret_is_in_no_text_of_the_token(book: TokenBook) -> None:
    token, record = make(book)
    secret = token.reveal().rpartition("_")[2]
    assert secret not in f"{token} {token!r} {record} {record!r} {[token]}"


def test_tokens_are_256_random_bits_with_a_mark_for_scanners() -> None:
    tokens = {Token.mint().reveal() for _ in range(50)}
    assert len(tokens) == 50
    assert all(text.startswith("nec_") and len(text.rpartition("_")[2]) == 64 for text in tokens)


@pytest.mark.parametrize(
    "change", [lambda text: text[:-1] + ("0" if text[-1] != "0" else "1"), lambda text: text[:21] + "0" * 64]
)
def test_other_secret_with_the_same_id_does_not_match(book: TokenBook, change: object) -> None:
    token, record = make(book)
    other = Token.parse(change(token.reveal()))  # type: ignore[operator]
    assert other is not None
    assert other.token_id == token.token_id
    assert not record.matches(other)


@pytest.mark.parametrize("text", ["", "nec_", "nec_0_0", "NEC_" + "0" * 16 + "_" + "0" * 64, "nec_../x_" + "0" * 64])
def test_what_is_no_token_is_none(text: str) -> None:
    assert Token.parse(text) is None


def test_hash_of_one_token_is_not_good_for_another_id(book: TokenBook) -> None:
    token, record = make(book)
    moved = Token.parse(f"nec_{'0' * 16}_{token.reveal().rpartition('_')[2]}")
    assert moved is not None
    assert not record.matches(moved)


def test_revoked_token_stays_listed_and_revoked(book: TokenBook) -> None:
    token, record = make(book)
    assert book.revoke(record.token_id, now=2000.0) == replace(record, revoked_at=2000.0)
    book.note_use(record.token_id, now=2001.0)
    again = book.revoke(record.token_id, now=3000.0)
    assert again is not None
    assert (again.state(2001.0), again.revoked_at) == ("revoked", 2000.0)
    assert book.records() == [again]
    assert again.matches(token)


def test_expired_token_is_not_valid_from_that_moment(book: TokenBook) -> None:
    _, record = make(book, expires_at=2000.0)
    assert (record.state(1999.9), record.state(2000.0)) == ("valid", "expired")


def test_last_use_is_remembered_and_is_no_token(book: TokenBook) -> None:
    _, record = make(book)
    assert book.used_at(record.token_id) is None
    book.note_use(record.token_id, now=1234.0)
    assert book.used_at(record.token_id) == 1234.0
    assert book.records() == [record]


@pytest.mark.parametrize("token_id", ["", "../../etc/passwd", "0" * 15, "0" * 16 + "/x"])
def test_id_that_cannot_be_one_names_no_path(book: TokenBook, token_id: str) -> None:
    assert book.find(token_id) is None


DAMAGE: list[dict[str, object]] = [
    {"scope": "root"},
    {"scope": "none"},
    {"namespaces": []},
    {"namespaces": ["*", "a"]},
    {"namespaces": ["../x"]},
    {"namespaces": "*"},
    {"schema": 2},
    {"id": "0" * 16},
    {"expires_at": "never"},
    {"revoked_at": True},
    {"name": ""},
]


@pytest.mark.parametrize("change", DAMAGE, ids=str)
def test_record_that_is_unclear_lets_nobody_in(book: TokenBook, tmp_path: Path, change: dict[str, object]) -> None:
    _, record = make(book)
    path = next((tmp_path / "store").rglob(f"{record.token_id}.json"))
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ValueError):
        decode_token_record(path.read_bytes(), token_id=record.token_id)
    assert book.find(record.token_id) is None
    assert book.records() == []


def test_record_survives_its_bytes(book: TokenBook) -> None:
    _, record = book.create("x", Scope.READ, frozenset({"a", "b"}), now=NOW, created_by="me", expires_at=5.0)
    assert decode_token_record(record.encode(), token_id=record.token_id) == record


@pytest.mark.parametrize("name", ["", "x" * 101, "a\nb"])
def test_name_that_would_spoil_a_log_is_refused(book: TokenBook, name: str) -> None:
    with pytest.raises(ValueError, match="printable"):
        make(book, name)


def test_tokens_of_two_replicas_are_the_same(tmp_path: Path) -> None:
    one, two = (TokenBook(open_storage(str(tmp_path)).store.backend) for _ in range(2))
    _, record = make(one)
    assert two.find(record.token_id) == record
    two.revoke(record.token_id, now=NOW)
    found = one.find(record.token_id)
    assert found is not None
    assert found.state(NOW) == "revoked"


def test_scopes_include_the_ones_below_and_namespaces_do_not_leak() -> None:
    principal = Principal("x", Scope.WRITE, frozenset({"a"}))
    assert [principal.may(scope, "a") for scope in (Scope.READ, Scope.WRITE, Scope.ADMIN)] == [True, True, False]
    assert not any(principal.may(scope, "b") for scope in (Scope.READ, Scope.WRITE, Scope.ADMIN))
    assert principal.sees("a")
    assert not principal.sees("b")
    assert not Principal("nobody", Scope.NONE).sees("a")


def test_namespaces_that_people_list() -> None:
    assert namespaces_of([]) is namespaces_of(["*"]) is None
    assert namespaces_of(("a", "b")) == {"a", "b"}
    for bad in (["*", "a"], ["../x"], ["A"]):
        with pytest.raises(CacheError):
            namespaces_of(bad)


def test_peer_that_fails_often_waits_and_others_do_not() -> None:
    limit = FailureLimit(burst=3, seconds=2.0)
    for _ in range(3):
        assert limit.wait("bad", 0.0) == 0.0
        limit.failed("bad", 0.0)
    assert limit.wait("bad", 0.0) == 2.0
    assert limit.wait("bad", 1.5) == 0.5
    assert limit.wait("bad", 2.0) == 0.0
    limit.failed("bad", 2.0)
    assert limit.wait("bad", 2.0) == 2.0
    assert limit.wait("good", 0.0) == 0.0


def test_memory_of_failures_is_bounded() -> None:
    limit = FailureLimit(burst=1)
    for peer in range(30_000):
        limit.failed(str(peer), 0.0)
    assert limit.wait("0", 0.0) == 0.0
    assert limit.wait("29999", 0.0) > 0


CERTIFICATE = {
    "subject": ((("organizationName", "Example"),), (("commonName", "trainer-7"),)),
    "subjectAltName": (("DNS", "trainer-7.example.com"), ("URI", "spiffe://example/trainer"), ("DNS", "trainer-7")),
    "serialNumber": "01",
}


def test_names_of_a_certificate() -> None:
    assert subject_names(CERTIFICATE) == ("trainer-7", "trainer-7.example.com", "spiffe://example/trainer")
    assert subject_names({}) == ()


@pytest.fixture
def rules(tmp_path: Path) -> CertificateRules:
    path = tmp_path / "clients.toml"
    path.write_text(
        '[[client]]\nname = "trainer-*.example.com"\nscope = "write"\nnamespaces = ["team-a"]\n'
        '[[client]]\nname = "spiffe://example/*"\nscope = "read"\n'
        '[[client]]\nname = "root"\nscope = "admin"\nnamespaces = ["*"]\n'
    )
    return CertificateRules.load(path)


def test_first_rule_that_fits_a_name_decides(rules: CertificateRules) -> None:
    names = subject_names(CERTIFICATE)
    assert rules.principal(names) == Principal("cert:trainer-7", Scope.WRITE, frozenset({"team-a"}))
    assert rules.principal(("x", "spiffe://example/y")) == Principal("cert:x", Scope.READ)
    assert rules.principal(("root",)) == Principal("cert:root", Scope.ADMIN)
    assert rules.principal(("roots",)) == Principal("cert:roots", Scope.NONE)
    assert rules.principal(()) == Principal("cert:", Scope.NONE)


def test_one_scope_for_every_certificate() -> None:
    assert CertificateRules.everybody(Scope.READ).principal(("x",)).may(Scope.READ, "any")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "to hold"),
        ("x = 1", "to hold"),
        ("client = 1", "to hold"),
        ("[[client", "not TOML"),
        ('[[client]]\nscope = "read"', "name"),
        ('[[client]]\nname = "x"\nscope = "root"', "root"),
        ('[[client]]\nname = "x"\nscope = 1', "scope"),
        ('[[client]]\nname = "x"\nscope = "read"\nnamespaces = []', "empty"),
        ('[[client]]\nname = "x"\nscope = "read"\nnamespaces = ["A"]', "client 1"),
        ('[[client]]\nname = "x"\nscope = "read"\nnamespace = "a"', "'namespace'"),
    ],
)
def test_rules_that_make_no_sense_are_named(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "clients.toml"
    path.write_text(text)
    with pytest.raises(CacheError, match=what):
        CertificateRules.load(path)


def test_audit_line_is_one_line_of_json_in_the_log_and_in_a_private_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "audit.log"
    audit = AuditLog(path, clock=lambda: 0.25)
    with caplog.at_level(logging.INFO, logger="neuron_env.cache.audit"):
        audit.record("publish", principal="token:ci", result="ok", key="ab", note="line\nbreak \u2028")
        path.rename(tmp_path / "audit.log.1")  # as logrotate does
        audit.record("gc", principal="cert:x", result="no-space")
    audit.close()
    first, second = (
        json.loads(text) for text in (tmp_path / "audit.log.1", path) for text in text.read_text().splitlines()
    )
    assert first == {
        "time": "1970-01-01T00:00:00.250Z",
        "action": "publish",
        "principal": "token:ci",
        "result": "ok",
        "key": "ab",
        "note": "line\nbreak \u2028",
    }
    assert second["action"] == "gc"
    told = [record.__dict__["fields"] for record in caplog.records]
    assert told == [{name: value for name, value in each.items() if name != "time"} for each in (first, second)]
    assert [record.getMessage() for record in caplog.records] == ["publish: ok", "gc: no-space"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_audit_log_that_cannot_be_written_is_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="cannot be written"):
        AuditLog(tmp_path / "missing" / "audit.log")
