"""neuron-env cache token and key: a secret is shown once, where it was asked for, and nowhere else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Invoke = Callable[..., Result]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("NEURON_ENV_CACHE_LOCAL_DIR", str(tmp_path / "local"))
    monkeypatch.setenv("NEURON_ENV_SERVER_STORE", str(tmp_path / "store"))
    return str(tmp_path / "store")


def document(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.output
    value: dict[str, Any] = json.loads(result.stdout)
    return value


def test_token_goes_to_stdout_alone_so_that_it_can_be_piped(invoke: Invoke, store: str) -> None:
    result = invoke("cache", "token", "create", "ci", "--scope", "write")
    assert result.exit_code == 0
    token = result.stdout.strip()
    assert token.startswith("nec_")
    assert token not in result.stderr
    assert "shown this once" in result.stderr


def test_token_is_listed_without_its_secret_and_revoked_by_name(invoke: Invoke, store: str) -> None:
    made = document(invoke("cache", "token", "create", "ci", "--namespace", "a", "--namespace", "b", "--json"))
    listed = invoke("cache", "token", "list", "--json")
    assert made["token"].rpartition("_")[2] not in listed.output
    [entry] = document(listed)["tokens"]
    assert (entry["id"], entry["scope"], entry["namespaces"], entry["state"]) == (
        made["id"],
        "read",
        ["a", "b"],
        "valid",
    )
    assert entry["expires_at"] - entry["created_at"] == pytest.approx(365 * 86400)
    assert document(invoke("cache", "token", "revoke", "ci", "--json"))["tokens"][0]["state"] == "revoked"
    assert document(invoke("cache", "token", "list", "--json"))["tokens"][0]["state"] == "revoked"
    assert invoke("cache", "token", "list", "-q").stdout.split() == [made["id"]]
    assert "revoked" in invoke("cache", "token", "list").stdout


def test_token_in_a_file_is_private_and_not_on_the_terminal(invoke: Invoke, store: str, tmp_path: Path) -> None:
    path = tmp_path / "ci.token"
    result = invoke("cache", "token", "create", "ci", "--expires", "never", "-o", path)
    assert result.exit_code == 0
    token = path.read_text().strip()
    assert token.startswith("nec_")
    assert token not in result.output
    assert path.stat().st_mode & 0o777 == 0o600
    assert invoke("cache", "token", "create", "ci", "-o", path).exit_code == 1
    assert path.read_text().strip() == token


def test_failed_creation_leaves_no_file(invoke: Invoke, store: str, tmp_path: Path) -> None:
    path = tmp_path / "ci.token"
    assert invoke("cache", "token", "create", "a\nb", "-o", path).exit_code == 1
    assert not path.exists()


def test_pasted_secret_is_not_repeated(invoke: Invoke, store: str) -> None:
    token = invoke("cache", "token", "create", "ci").stdout.strip()
    result = invoke("cache", "token", "revoke", token)
    assert result.exit_code == 1
    assert token not in result.output


def test_name_of_two_tokens_needs_an_id(invoke: Invoke, store: str) -> None:
    ids = [document(invoke("cache", "token", "create", "ci", "--json"))["id"] for _ in range(2)]
    result = invoke("cache", "token", "revoke", "ci")
    assert result.exit_code == 1
    assert "2 valid tokens" in result.output
    assert invoke("cache", "token", "revoke", *ids).exit_code == 0


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--scope", "root"], "'root'"),
        (["--expires", "soon"], "duration"),
        (["--namespace", "../x"], "not a cache namespace"),
        (["--namespace", "*", "--namespace", "a"], "every namespace"),
        (["--store", "https://cache.example.com"], "is a service"),
    ],
)
def test_what_makes_no_sense_is_told(invoke: Invoke, store: str, options: list[str], what: str) -> None:
    result = invoke("cache", "token", "create", "ci", *options)
    assert result.exit_code in (1, 2)
    assert what in result.output


def test_changes_are_in_the_audit_log(
    invoke: Invoke, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEURON_ENV_SERVER_AUDIT_LOG", str(tmp_path / "audit"))
    token = invoke("cache", "token", "create", "ci").stdout.strip()
    invoke("cache", "token", "revoke", "ci")
    text = (tmp_path / "audit").read_text()
    assert [json.loads(line)["action"] for line in text.splitlines()] == ["token-create", "token-revoke"]
    assert token.rpartition("_")[2] not in text


def test_key_is_made_once_and_shown_by_its_public_half(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "signing.pem"
    made = document(invoke("cache", "key", "generate", path, "--json"))
    assert made["public_key"].startswith("ed25519:")
    assert path.stat().st_mode & 0o777 == 0o600
    shown = invoke("cache", "key", "show", path)
    assert shown.stdout.strip() == f"{made['public_key']}  # {made['key_id']}"
    assert invoke("cache", "key", "generate", path).exit_code == 1
    assert document(invoke("cache", "key", "show", path, "--json"))["public_key"] == made["public_key"]


def test_line_that_is_shown_is_one_that_readers_take(invoke: Invoke, store: str, tmp_path: Path) -> None:
    invoke("cache", "key", "generate", tmp_path / "signing.pem")
    (tmp_path / "trusted").write_text(invoke("cache", "key", "show", tmp_path / "signing.pem").stdout)
    environment = {
        "NEURON_ENV_CACHE_TRUSTED_KEYS": str(tmp_path / "trusted"),
        "NEURON_ENV_CACHE_REQUIRE_SIGNATURE": "1",
    }
    assert invoke("cache", "fsck", "--cache-url", store, env=environment).exit_code == 0


def test_requiring_signatures_without_keys_is_told_with_what_to_do(invoke: Invoke, store: str) -> None:
    result = invoke("cache", "ls", "--cache-url", store, env={"NEURON_ENV_CACHE_REQUIRE_SIGNATURE": "1"})
    assert result.exit_code == 1
    assert "NEURON_ENV_CACHE_TRUSTED_KEYS" in result.output
