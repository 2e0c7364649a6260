"""What the subjects of client certificates may do. Pure: the handshake and the check against the CA are behind us."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from cache_server.errors import CacheError
from cache_server.trust.principal import Principal, Scope, namespaces_of

_KINDS = ("DNS", "URI", "email", "IP Address")  # of a subject's alternative names
_HINT = 'write [[client]] tables such as: name = "trainer-*.example.com", scope = "write", namespaces = ["team-a"]'


@dataclass(frozen=True, slots=True)
class Rule:
    """`name` is a subject's common or alternative name, `*` and `?` standing for any characters or one."""

    name: str
    scope: Scope
    namespaces: frozenset[str] | None


class CertificateRules:
    """The first rule that one of a certificate's names fits says what its holder may do."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.rules = rules

    @classmethod
    def everybody(cls, scope: Scope) -> CertificateRules:
        """Whoever has a certificate of the authority has this scope, in every namespace."""
        return cls((Rule("*", scope, None),))

    @classmethod
    def load(cls, path: Path) -> CertificateRules:
        """The rules in a TOML file. Raises CacheError that names what is wrong with it."""
        try:
            with path.open("rb") as file:
                document = tomllib.load(file)
        except OSError as error:
            raise CacheError(f"the client scopes in {path} cannot be read: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise CacheError(f"{path} is not TOML: {error}") from None
        tables = document.get("client")
        if document.keys() != {"client"} or not isinstance(tables, list) or not tables:
            raise CacheError(f"{path} has to hold [[client]] tables, and nothing else", hint=_HINT)
        return cls(tuple(_rule(table, f"client {number} in {path}") for number, table in enumerate(tables, 1)))

    def principal(self, names: tuple[str, ...]) -> Principal:
        """Who the holder of a certificate is; without a scope if no rule fits. `names`: see `subject_names`."""
        called = f"cert:{names[0]}" if names else "cert:"
        for rule in self.rules:
            if any(fnmatchcase(name, rule.name) for name in names):
                return Principal(called, rule.scope, rule.namespaces)
        return Principal(called, Scope.NONE)


def subject_names(certificate: Mapping[str, Any]) -> tuple[str, ...]:
    """The common and alternative names in what `SSLSocket.getpeercert()` gave, in that order, without repeats."""
    names = [value for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"]
    names += [value for kind, value in certificate.get("subjectAltName", ()) if kind in _KINDS]
    return tuple(dict.fromkeys(name for name in names if isinstance(name, str) and name.isprintable()))


def _rule(table: object, where: str) -> Rule:
    try:
        if not isinstance(table, dict):
            raise ValueError("it is no table")
        unknown = table.keys() - {"name", "scope", "namespaces"}
        if unknown:
            raise ValueError(f"there is no setting {min(unknown)!r}")
        name, scope, namespaces = table.get("name"), table.get("scope"), table.get("namespaces", [])
        if not isinstance(name, str) or not name:
            raise ValueError("name is no text")
        if not isinstance(scope, str):
            raise ValueError("scope is no text")
        if not isinstance(namespaces, list) or not all(isinstance(item, str) for item in namespaces):
            raise ValueError("namespaces is no list of texts")
        if namespaces == [] and "namespaces" in table:
            raise ValueError('namespaces is empty; leave it out, or write ["*"], for all')
        return Rule(name, Scope.named(scope), namespaces_of(namespaces))
    except CacheError as error:
        raise CacheError(f"{where}: {error.message}", hint=error.hint or _HINT) from None
    except ValueError as error:
        raise CacheError(f"{where}: {error}", hint=_HINT) from None
