"""neuron-env cache token and neuron-env cache key: who may use the service, and whose NEFFs are believed."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from neuron_runtime.errors import NeuronEnvError

from .output import Mode, json_option, output, quiet_option
from .units import duration, duration_text

if TYPE_CHECKING:
    from cache_server.trust.audit import AuditLog
    from cache_server.trust.keys import SigningKey
    from cache_server.trust.tokens import Token, TokenBook, TokenRecord

P = ParamSpec("P")
R = TypeVar("R")


@click.group()
def token() -> None:
    """Tokens for the cache service: who may read, write and administer it.

    \b
    Examples:
      neuron-env cache token create trainers --scope write --store s3://bucket/neff
      neuron-env cache token list
      neuron-env cache token revoke 3f9a51c2d07be844

    These commands work on the store itself, as the service does: whoever can write the store can make tokens, so the
    first one needs no other. Every replica heeds a new or revoked token within seconds.
    """


@click.group()
def key() -> None:
    """Keys that manifests are signed with, so that readers can tell whose NEFFs they are.

    \b
    Examples:
      neuron-env cache key generate /etc/neuron-env/signing.pem
      neuron-env cache key show /etc/neuron-env/signing.pem >> trusted-keys
    """


def store_option(command: Callable[P, R]) -> Callable[P, R]:
    """Give a command `--store`."""
    return click.option(
        "--store",
        metavar="URL",
        help="The service's store.  [env: NEURON_ENV_SERVER_STORE, else NEURON_ENV_CACHE_URL]",
    )(command)


@token.command()
@click.argument("name")
@click.option(
    "--scope",
    type=click.Choice(["read", "write", "admin"]),
    default="read",
    show_default=True,
    help="What it allows; each includes the one before.",
)
@click.option("--namespace", "namespaces", multiple=True, metavar="NAME", help="Only there; may be repeated.")
@click.option(
    "--expires",
    metavar="AGE",
    default="365d",
    show_default=True,
    help="When it ends by itself: 90d, 12h, or never.",
)
@click.option("-o", "--output", "target", type=click.Path(path_type=Path), help="Write it to a new file (0600).")
@store_option
@json_option
def create(
    name: str, scope: str, namespaces: tuple[str, ...], expires: str, target: Path | None, store: str | None
) -> None:
    """Make a token and show it, once: the store keeps its hash.

    \b
    Examples:
      neuron-env cache token create ci --scope write --namespace trn2 --expires 90d -o ci.token
      NEURON_ENV_CACHE_TOKEN=$(neuron-env cache token create me) neuron-env compile model.py:decode

    Clients read a token from NEURON_ENV_CACHE_TOKEN, or from the file that NEURON_ENV_CACHE_TOKEN_FILE names.
    """
    from cache_server.trust.principal import Scope, namespaces_of
    from cache_server.trust.tokens import describe

    now = time.time()
    lifetime = None if expires == "never" else duration(expires)
    book, audit, me = _opened(store)
    granted = namespaces_of(namespaces)
    with _reserved(target) as descriptor:
        try:
            made, record = book.create(
                name,
                Scope.named(scope),
                granted,
                now=now,
                created_by=me,
                expires_at=None if lifetime is None else now + lifetime,
            )
        except ValueError as error:
            raise NeuronEnvError(f"no such token can be made: {error}") from None
        audit.record("token-create", principal=me, result="ok", token=record.token_id, name=name, scope=scope)
        if descriptor is not None:
            os.write(descriptor, made.reveal().encode() + b"\n")
    _tell_made(made, record, describe(record, now=now, used_at=None), target)


@token.command("list")
@store_option
@json_option
@quiet_option
def list_command(store: str | None) -> None:
    """List the tokens, revoked and expired ones too, without their secrets.

    \b
    Examples:
      neuron-env cache token list
    """
    from cache_server.trust.tokens import describe

    book, _, _ = _opened(store)
    out, now = output(), time.time()
    found = [describe(record, now=now, used_at=book.used_at(record.token_id)) for record in book.records()]
    if out.mode is Mode.JSON:
        out.json_document({"tokens": found})
        return
    out.table(
        ["ID", "NAME", "SCOPE", "NAMESPACES", "STATE", "EXPIRES", "LAST USED"],
        [
            [
                each["id"],
                each["name"],
                each["scope"],
                ",".join(each["namespaces"]),
                each["state"],
                _until(each["expires_at"], now),
                "-" if each["used_at"] is None else f"{duration_text(now - each['used_at'])} ago",
            ]
            for each in found
        ],
    )
    if not found:
        out.note("there are no tokens; `neuron-env cache token create NAME` makes one")


@token.command()
@click.argument("tokens", nargs=-1, required=True, metavar="TOKEN...")
@store_option
@json_option
def revoke(tokens: tuple[str, ...], store: str | None) -> None:
    """End tokens for good. TOKEN is an id, or a name that only one valid token has.

    \b
    Examples:
      neuron-env cache token revoke 3f9a51c2d07be844
      neuron-env cache token revoke ci

    Every replica refuses it within seconds. The record stays in the list, to tell who had access.
    """
    book, audit, me = _opened(store)
    out, now = output(), time.time()
    chosen = [_resolve(text, book.records(), now) for text in tokens]
    documents = []
    for each in chosen:
        was = each.state(now)
        revoked = book.revoke(each.token_id, now=now)
        if revoked is None:
            raise NeuronEnvError(f"the token {each.token_id} is no longer there")
        audit.record("token-revoke", principal=me, result="ok", token=each.token_id, name=each.name)
        documents.append({"id": each.token_id, "name": each.name, "was": was, "state": revoked.state(now)})
    if out.mode is Mode.JSON:
        out.json_document({"tokens": documents})
        return
    for document in documents:
        out.line(f"revoked: {document['id']} ({document['name']}), which was {document['was']}")


@key.command()
@click.argument("path", type=click.Path(path_type=Path), metavar="FILE")
@json_option
def generate(path: Path) -> None:
    """Make a key, and keep it in FILE, which only you can read (0600). Prints the public half.

    \b
    Examples:
      neuron-env cache key generate signing.pem

    The service signs with it (NEURON_ENV_SERVER_SIGNING_KEY), or a job that publishes to the store directly
    (NEURON_ENV_CACHE_SIGNING_KEY). Readers get the public half (NEURON_ENV_CACHE_TRUSTED_KEYS).
    """
    from cache_server.trust.keys import SigningKey

    made = SigningKey.generate()
    made.save(path)
    output().note(f"the private key is in {path}; readers need this line:")
    _tell_key(made)


@key.command()
@click.argument("path", type=click.Path(path_type=Path), metavar="FILE")
@json_option
def show(path: Path) -> None:
    """Show the public half of the private key in FILE, as a line for NEURON_ENV_CACHE_TRUSTED_KEYS.

    \b
    Examples:
      neuron-env cache key show signing.pem
    """
    from cache_server.trust.keys import SigningKey

    _tell_key(SigningKey.load(path))


def _opened(store: str | None) -> tuple[TokenBook, AuditLog, str]:
    from cache_server.leases.owner import Owner
    from cache_server.storage import open_storage
    from cache_server.trust.audit import AuditLog
    from cache_server.trust.tokens import TokenBook
    from neuron_runtime.config.layers import settings_environment

    from .cache import cache_settings

    environ = settings_environment()
    url = store or environ.get("NEURON_ENV_SERVER_STORE") or environ.get("NEURON_ENV_CACHE_URL")
    if url and url.startswith(("http://", "https://")):
        raise NeuronEnvError(
            f"{url} is a service, and tokens are made in its store",
            hint="give `--store` with the directory or the s3:// URL that the service keeps its entries in",
        )
    settings, url = cache_settings(url, None)
    storage = open_storage(url, permissions=settings.permissions)
    audit_log = environ.get("NEURON_ENV_SERVER_AUDIT_LOG")
    audit = AuditLog(Path(audit_log) if audit_log else None)
    click.get_current_context().call_on_close(audit.close)
    me = Owner.here()
    return TokenBook(storage.store.backend), audit, f"{me.user}@{me.host}"


@contextlib.contextmanager
def _reserved(target: Path | None) -> Any:
    """A new private file for a secret, open before the secret is made; None without a target."""
    if target is None:
        yield None
        return
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise NeuronEnvError(f"{target} cannot be created: {error.strerror}", hint="choose another name") from None
    try:
        yield descriptor
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def _tell_made(made: Token, record: TokenRecord, document: dict[str, Any], target: Path | None) -> None:
    out = output()
    if out.mode is Mode.JSON:
        secret = {"file": str(target)} if target else {"token": made.reveal()}
        out.json_document({**secret, **document})
        return
    where = ", ".join(document["namespaces"]).replace("*", "every namespace")
    until = "for good" if record.expires_at is None else f"for {duration_text(record.expires_at - record.created_at)}"
    out.note(f"token {record.token_id} ({record.name}): {document['scope']} in {where}, {until}")
    if target is None:
        out.note("it is shown this once, and cannot be had again:")
        out.line(made.reveal())
    else:
        out.line(str(target))


def _tell_key(made: SigningKey) -> None:
    out = output()
    if out.mode is Mode.JSON:
        out.json_document({"key_id": made.public.key_id, "public_key": made.public.text})
    else:
        out.line(f"{made.public.text}  # {made.public.key_id}")


def _resolve(text: str, records: list[TokenRecord], now: float) -> TokenRecord:
    by_id = [record for record in records if record.token_id == text]
    named = [record for record in records if record.name == text and record.state(now) == "valid"]
    found = by_id or named
    if len(found) == 1:
        return found[0]
    if found:
        raise NeuronEnvError(
            f"{len(found)} valid tokens are called {text!r}",
            hint="name one by its id; see `neuron-env cache token list`",
        )
    # Somebody may have pasted the secret, which is not to be shown again.
    raise NeuronEnvError(
        "there is no such token, or none that is valid", hint="see `neuron-env cache token list`; name it by its id"
    )


def _until(expires_at: float | None, now: float) -> str:
    if expires_at is None:
        return "never"
    return "over" if expires_at <= now else f"in {duration_text(expires_at - now)}"
