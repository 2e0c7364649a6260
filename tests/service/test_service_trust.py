"""Who may do what at a real service: by token, by certificate, by nothing at all."""

from __future__ import annotations

import hashlib
import json
import ssl
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trust_service_kit import DEADLINE, Answer, Authority, Service, running

from cache_server import CacheSettings, KeyParts, NeffCache
from cache_server.leases import Lease, Vacant
from cache_server.leases.owner import Owner
from cache_server.manifest import NEFF_FILE, Blob, Manifest, Producer, decode_manifest
from cache_server.result import Outcome
from cache_server.service.route import Route
from cache_server.service.routes import all_routes
from cache_server.storage import open_storage
from cache_server.trust.keys import SigningKey
from cache_server.trust.principal import Scope
from cache_server.trust.signatures import Verifier

pytestmark = pytest.mark.fleet

NEFF = b"the NEFF"
PARTS = KeyParts.of(ir=b"module {}", compiler="cc", compiler_version="2.0", flags=("-O2",), target="trn2", lnc=2)
KEY, SHA = PARTS.key, hashlib.sha256(NEFF).hexdigest()
BASE = "/v1/namespaces/{ns}"
STATS = "/v1/stats"


def entry(namespace: str = "a", key: str = KEY) -> str:
    return f"/v1/namespaces/{namespace}/entries/{key}"


def manifest(epoch: int = 1) -> Manifest:
    return Manifest(
        PARTS, {NEFF_FILE: Blob(SHA, len(NEFF))}, epoch, Producer("h", 1, "u", "cc 2.0", 1.0, 2.0), 3.0, "secret label"
    )


def put_blob(service: Service, namespace: str = "a") -> None:
    open_storage(str(service.store), namespace=namespace).store.put_blob(NEFF)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that knows nobody without a token; for tests that leave nothing that others could stumble over."""
    with running(tmp_path_factory.mktemp("service"), NEURON_ENV_SERVER_ANONYMOUS="none") as service:
        yield service


@pytest.fixture(scope="module")
def tokens(shared: Service) -> dict[str, str]:
    return {
        "read": shared.token("reader", Scope.READ, "a"),
        "write": shared.token("writer", Scope.WRITE, "a"),
        "admin": shared.token("admin", Scope.ADMIN, "a"),
        "read everywhere": shared.token("reader of all", Scope.READ),
        "write everywhere": shared.token("writer of all", Scope.WRITE),
        "root": shared.token("root", Scope.ADMIN),
    }


ROUTES = [route for route in all_routes() if route.scope is not Scope.NONE]


def concrete(route: Route, namespace: str) -> str:
    path = route.path
    values = {"ns": namespace, "key": KEY, "sha256": SHA, "job": "job", "part": "part"}
    for name, value in values.items():
        path = path.replace("{" + name + "}", value)
    return path.replace("{id}", "0" * 32).replace("{rest:path}", "some/object")


def test_only_a_few_routes_are_open_to_everybody() -> None:
    opened = {route.path for route in all_routes() if route.scope is Scope.NONE}
    assert opened == {"/", "/dashboard/{file}", "/metrics", "/healthz", "/readyz", "/openapi.json"}


def test_what_changes_the_store_needs_more_than_read() -> None:
    harmless = {BASE + "/lookup"}
    for route in all_routes():
        if route.method not in ("GET", "HEAD", "PROPFIND") and route.path not in harmless:
            assert route.scope >= Scope.WRITE, f"{route.method} {route.path}"


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_refuses_who_may_not(route: Route, shared: Service, tokens: dict[str, str]) -> None:
    lower = {Scope.READ: [], Scope.WRITE: ["read"], Scope.ADMIN: ["read", "write"]}[route.scope]
    for name in lower:
        answer = shared.ask(route.method, concrete(route, "a"), {}, token=tokens[name])
        assert (answer.status, answer.slug) == (403, "forbidden"), f"{name}: {answer}"
    answer = shared.ask(route.method, concrete(route, "a"), {})
    assert (answer.status, answer.slug) == (401, "unauthorized")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    if "{ns}" in route.path:
        # Not even an administrator of another namespace learns whether there is anything.
        answer = shared.ask(route.method, concrete(route, "b"), {}, token=tokens["admin"])
        assert (answer.status, answer.slug) == (403, "forbidden")
        head = shared.ask("HEAD", concrete(route, "b"), token=tokens["admin"]).status
        assert head in (403, 405)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_admits_who_may(route: Route, shared: Service, tokens: dict[str, str]) -> None:
    name = {Scope.READ: "read", Scope.WRITE: "write", Scope.ADMIN: "root"}[route.scope]
    if "{ns}" not in route.path and name != "root":
        name += " everywhere"
    answer = shared.ask(route.method, concrete(route, "a"), {}, token=tokens[name])
    assert answer.status not in (401, 403), answer


def test_entry_of_another_namespace_is_in_no_answer(shared: Service, tokens: dict[str, str]) -> None:
    put_blob(shared, "b")
    document = manifest().to_json()
    assert shared.ask("PUT", entry("b"), document, token=tokens["root"]).status in (200, 201)
    owner = Owner("secret-host", 7, "secret-user").to_json()
    lease = {"owner": owner, "lease_seconds": 60}
    other = "f" * 64
    acquired = shared.ask("POST", f"/v1/namespaces/b/leases/{other}/acquire", lease, token=tokens["root"])
    assert acquired.status == 201
    answers: list[Answer] = [
        shared.ask("GET", entry("a"), token=tokens["admin"]),
        shared.ask("POST", "/v1/namespaces/a/lookup", {"keys": [KEY]}, token=tokens["admin"]),
        shared.ask("GET", "/v1/namespaces/a/entries", token=tokens["admin"]),
        shared.ask("GET", "/v1/namespaces/a/leases", token=tokens["admin"]),
        shared.ask("GET", f"/v1/namespaces/a/leases/{other}", token=tokens["admin"]),
        shared.ask("GET", "/v1/namespaces/a/stats", token=tokens["admin"]),
        shared.ask("GET", STATS, token=tokens["admin"]),
    ]
    for answer in answers:
        assert b"secret" not in answer.body
        assert b'"b"' not in answer.body
    seen = shared.ask("GET", STATS, token=tokens["root"]).json
    assert "b" in seen["namespaces"] or seen["in_flight"]


def test_administrator_of_some_namespaces_does_not_collect_in_all(shared: Service, tokens: dict[str, str]) -> None:
    assert shared.ask("POST", "/v1/gc", {"dry_run": True}, token=tokens["admin"]).status == 403
    assert shared.ask("POST", "/v1/gc", {"dry_run": True}, token=tokens["root"]).status == 200


def test_token_is_taken_as_the_password_of_basic(shared: Service, tokens: dict[str, str]) -> None:
    assert shared.ask("GET", STATS, basic=tokens["read"]).status == 200
    assert shared.ask("GET", STATS, basic="guess").status == 401


def test_password_that_a_browser_added_for_another_site_is_refused(shared: Service, tokens: dict[str, str]) -> None:
    answer = shared.ask("POST", "/v1/gc", {"dry_run": True}, basic=tokens["root"], Sec_Fetch_Site="cross-site")
    assert answer.status == 403
    answer = shared.ask("POST", "/v1/gc", {"dry_run": True}, basic=tokens["root"], Sec_Fetch_Site="same-origin")
    assert answer.status == 200


def test_revoked_token_is_refused_within_seconds(shared: Service) -> None:
    token = shared.token("leaver", Scope.READ)
    assert shared.ask("GET", STATS, token=token).status == 200
    shared.book.revoke(token.split("_")[1], now=time.time())
    end = time.monotonic() + DEADLINE
    while (answer := shared.ask("GET", STATS, token=token)).status == 200:
        assert time.monotonic() < end
    assert (answer.status, answer.slug) == (401, "unauthorized")
    assert "revoked" in answer.json["detail"]


def test_expired_token_is_refused(shared: Service) -> None:
    answer = shared.ask("GET", STATS, token=shared.token("late", Scope.READ, expires_at=time.time() - 1))
    assert answer.status == 401
    assert "expired" in answer.json["detail"]


def test_use_of_a_token_is_noted(shared: Service) -> None:
    token = shared.token("used", Scope.READ)
    assert shared.ask("GET", STATS, token=token).status == 200
    end = time.monotonic() + DEADLINE
    while shared.book.used_at(token.split("_")[1]) is None:
        assert time.monotonic() < end
        time.sleep(0.01)


def test_address_that_guesses_is_slowed_and_a_known_token_behind_it_is_not(tmp_path: Path) -> None:
    with running(tmp_path, NEURON_ENV_SERVER_ANONYMOUS="none") as service:
        good = service.token("good", Scope.READ)
        assert service.ask("GET", STATS, token=good).status == 200
        wrong = [
            good[:-1] + ("0" if good[-1] != "0" else "1"),
            "nec_" + "0" * 16 + "_" + "0" * 64,
            "no token at all",
        ]
        for each in wrong:
            assert service.ask("GET", STATS, token=each).status == 401
        for header in ("", "Bearer", "Basic", "Basic =", "Basic ////", "Digest x", "x" * 4000):
            assert service.ask("GET", STATS, Authorization=header).status == 401
        statuses = [service.ask("GET", STATS, token=wrong[1]) for _ in range(40)]
        assert statuses[-1].status == 429
        assert statuses[-1].slug == "busy"
        assert int(statuses[-1].headers["retry-after"]) >= 1
        assert service.ask("GET", STATS, token=good).status == 200
        text = service.log.read_text() + service.announced
        secrets = [good.rpartition("_")[2], wrong[0].rpartition("_")[2]]
        assert not [secret for secret in secrets if secret in text]


def test_convenience_of_a_loopback_address_ends_with_the_first_token_and_behind_a_proxy(tmp_path: Path) -> None:
    with running(tmp_path) as service:
        assert "until there is a token" in service.announced
        assert service.ask("GET", STATS).status == 200
        assert service.ask("GET", STATS, X_Forwarded_For="203.0.113.9").status == 401
        token = service.token("first", Scope.READ)
        end = time.monotonic() + DEADLINE
        while service.ask("GET", STATS).status == 200:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert service.ask("GET", STATS, token=token).status == 200


def test_service_signs_what_it_publishes_and_writes_down_who_did(tmp_path: Path) -> None:
    key = SigningKey.generate()
    key.save(tmp_path / "key.pem")
    audit = tmp_path / "audit"
    with running(
        tmp_path,
        NEURON_ENV_SERVER_SIGNING_KEY=str(tmp_path / "key.pem"),
        NEURON_ENV_SERVER_AUDIT_LOG=str(audit),
    ) as service:
        put_blob(service)
        writer, admin = service.token("ci", Scope.WRITE, "a"), service.token("ops", Scope.ADMIN)
        owner = {"owner": Owner.here().to_json(), "lease_seconds": 60}
        leases = f"/v1/namespaces/a/leases/{KEY}"
        lease = service.ask("POST", f"{leases}/acquire", owner, token=writer).json
        holder = {"token": lease["token"], "epoch": lease["epoch"]}
        document = manifest(lease["epoch"]).to_json()
        published = service.ask("POST", f"{leases}/publish", {**holder, "manifest": document}, token=writer)
        assert published.status == 201
        verifier = Verifier([key.public], required=True)
        for data in (
            service.ask("GET", entry(), token=writer).body,
            json.dumps(service.ask("GET", leases, token=writer).json["record"]["manifest"]).encode(),
        ):
            assert verifier.trusts(decode_manifest(data, key=KEY), "a")
        other = service.ask("POST", f"{leases}/acquire", owner, token=writer)
        assert other.status == 409
        assert service.ask("DELETE", entry(), token=writer).status == 403
        assert service.ask("DELETE", entry(), token=admin, X_Request_Id="req-7").status == 204
        assert service.ask("POST", "/v1/gc", {"dry_run": True}, token=admin).status == 200
        assert service.ask("DELETE", entry()).status == 401
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [(line["action"], line["principal"], line["result"]) for line in lines] == [
        ("publish", "token:ci", "ok"),
        ("delete", "token:ci", "forbidden"),
        ("delete", "token:ops", "ok"),
        ("gc", "token:ops", "ok"),
    ]
    assert (lines[0]["namespace"], lines[0]["key"], lines[0]["digest"]) == ("a", KEY, SHA)
    assert lines[2]["request_id"] == "req-7"
    logged = [json.loads(line) for line in service.log.read_text().splitlines() if '"cache.audit"' in line]
    assert [line["action"] for line in logged] == [line["action"] for line in lines]
    secrets = [token.rpartition("_")[2] for token in (writer, admin)] + [lease["token"]]
    assert not [secret for secret in secrets if secret in service.log.read_text() + audit.read_text()]


@pytest.mark.parametrize("route", all_routes(), ids=lambda route: f"{route.method} {route.path}")
def test_every_change_has_a_name_in_the_audit_log(route: Route) -> None:
    # Leases come and go, blobs do nothing before a manifest names them, and collections need not be made.
    lasting = route.scope >= Scope.WRITE and not route.path.endswith(("/acquire", "/heartbeat"))
    lasting = lasting and route.method != "MKCOL"
    if lasting and not any(part in route.path for part in ("/blobs/", "/uploads", "/cas/")):
        assert route.audit


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    directory = tmp_path_factory.mktemp("certificates")
    ours, theirs = Authority(directory, "ours"), Authority(directory, "theirs")
    return {
        "directory": directory,
        "ours": ours,
        "server": ours.issue_server(),
        "trainer": ours.issue("trainer-7"),
        "stranger": ours.issue("stranger"),
        "forged": theirs.issue("trainer-8"),
    }


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, certificates: dict[str, Any]) -> Iterator[Service]:
    """A service with TLS that takes client certificates as well as tokens."""
    directory = tmp_path_factory.mktemp("secure")
    rules = directory / "clients.toml"
    rules.write_text('[[client]]\nname = "trainer-*"\nscope = "write"\nnamespaces = ["a"]\n')
    with running(
        directory,
        NEURON_ENV_SERVER_TLS_CERT=str(certificates["server"][0]),
        NEURON_ENV_SERVER_TLS_KEY=str(certificates["server"][1]),
        NEURON_ENV_SERVER_CLIENT_CA=str(certificates["ours"].path),
        NEURON_ENV_SERVER_CLIENT_SCOPES=str(rules),
        NEURON_ENV_SERVER_ANONYMOUS="none",
    ) as service:
        yield service


def test_certificate_of_our_authority_is_who_it_says(secure: Service, certificates: dict[str, Any]) -> None:
    trainer = certificates["ours"].context(certificates["trainer"])
    put_blob(secure)
    assert secure.ask("PUT", entry(), manifest().to_json(), tls=trainer).status == 201
    assert secure.ask("GET", entry("b"), tls=trainer).status == 403
    assert secure.ask("DELETE", entry(), tls=trainer).status == 403
    assert "cert:trainer-7" in secure.log.read_text()


def test_certificate_that_no_rule_fits_or_none_at_all_gets_nothing(
    secure: Service, certificates: dict[str, Any]
) -> None:
    ours = certificates["ours"]
    assert secure.ask("GET", STATS, tls=ours.context(certificates["stranger"])).status == 401
    assert secure.ask("GET", STATS, tls=ours.context()).status == 401
    assert secure.ask("GET", "/healthz", tls=ours.context()).status == 200


def test_certificate_of_another_authority_ends_the_handshake(secure: Service, certificates: dict[str, Any]) -> None:
    with pytest.raises((ssl.SSLError, ConnectionError, OSError)):
        secure.ask("GET", STATS, tls=certificates["ours"].context(certificates["forged"]))


def test_token_works_over_tls_and_wins_over_the_certificate(secure: Service, certificates: dict[str, Any]) -> None:
    ours, token = certificates["ours"], secure.token("reader", Scope.READ, "b")
    assert secure.ask("GET", STATS, token=token, tls=ours.context()).status == 200
    assert secure.ask("GET", entry(), token=token, tls=ours.context(certificates["trainer"])).status == 403


def test_name_in_a_header_is_no_certificate(secure: Service, certificates: dict[str, Any]) -> None:
    tls = certificates["ours"].context()
    for header in ("X_Client_Cert", "X_SSL_Client_S_DN_CN", "neuron_env.certificate_names"):
        assert secure.ask("GET", STATS, tls=tls, **{header: "trainer-7"}).status == 401


def test_one_scope_for_every_certificate(tmp_path: Path, certificates: dict[str, Any]) -> None:
    with running(
        tmp_path,
        NEURON_ENV_SERVER_TLS_CERT=str(certificates["server"][0]),
        NEURON_ENV_SERVER_TLS_KEY=str(certificates["server"][1]),
        NEURON_ENV_SERVER_CLIENT_CA=str(certificates["ours"].path),
        NEURON_ENV_SERVER_CLIENT_SCOPE="read",
        NEURON_ENV_SERVER_ANONYMOUS="none",
    ) as service:
        stranger = certificates["ours"].context(certificates["stranger"])
        assert service.ask("GET", STATS, tls=stranger).status == 200
        assert service.ask("PUT", entry(), {}, tls=stranger).status == 403


EVIL = b"what an attacker would like to run"


def plant(service: Service) -> Manifest:
    """What somebody who can write the store itself, but has no key, leaves there: a key that was published just now."""
    storage = open_storage(str(service.store), namespace="a")
    lease = Lease.claim(
        storage.records,
        storage.store.record_name(KEY),
        Vacant(0, None),
        owner=Owner("secret-host", 7, "secret-user"),
        lease_seconds=60.0,
    )
    evil = replace(manifest(lease.epoch), files={NEFF_FILE: storage.store.put_blob(EVIL)})
    lease.publish(evil)
    return evil


def job(service: Service, directory: Path, **settings: Any) -> NeffCache:
    host, port = service.address
    return NeffCache.open(settings=CacheSettings(f"http://{host}:{port}", directory, namespace="a", **settings))


@pytest.fixture
def signing(tmp_path: Path) -> Iterator[tuple[Service, SigningKey]]:
    key = SigningKey.generate()
    key.save(tmp_path / "key.pem")
    with running(tmp_path, NEURON_ENV_SERVER_SIGNING_KEY=str(tmp_path / "key.pem")) as service:
        yield service, key


def test_neff_goes_from_job_to_job_under_the_signature_of_the_service(
    signing: tuple[Service, SigningKey], tmp_path: Path
) -> None:
    service, key = signing
    trust = {"trusted_keys": key.public.text, "require_signature": True}
    assert job(service, tmp_path / "one", **trust).get_or_compile(PARTS, lambda: NEFF).outcome is Outcome.COMPILED
    hit = job(service, tmp_path / "two", **trust).get_or_compile(PARTS, lambda: pytest.fail("it is there"))
    assert (hit.neff, hit.outcome) == (NEFF, Outcome.SHARED_HIT)
    stranger = SigningKey.generate().public.text
    careful = job(service, tmp_path / "three", trusted_keys=stranger, require_signature=True)
    assert careful.get(PARTS) is None
    assert careful.stats.refused == 1


def test_service_signs_nothing_that_it_merely_found(signing: tuple[Service, SigningKey], tmp_path: Path) -> None:
    service, key = signing
    evil = plant(service)
    # A job that requires nothing finds it, and the service lists it: neither makes it more than it is.
    assert job(service, tmp_path / "careless").get_or_compile(PARTS, lambda: NEFF).neff == EVIL
    assert service.ask("GET", f"/v1/namespaces/a/leases/{KEY}").status == 200
    end = time.monotonic() + DEADLINE
    while (answer := service.ask("GET", entry())).status == 404:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert decode_manifest(answer.body, key=KEY) == evil
    careful = job(service, tmp_path / "careful", trusted_keys=key.public.text, require_signature=True)
    assert careful.get(PARTS) is None
    assert careful.get_or_compile(PARTS, lambda: NEFF).neff == NEFF
    # Its own result, signed by the service, has taken the place of what was planted.
    again = job(service, tmp_path / "another", trusted_keys=key.public.text, require_signature=True)
    assert again.get_or_compile(PARTS, lambda: pytest.fail("it is there")).neff == NEFF


def test_what_the_service_removes_by_itself_is_in_the_audit_log_too(tmp_path: Path) -> None:
    audit = tmp_path / "audit"
    with running(
        tmp_path,
        NEURON_ENV_SERVER_AUDIT_LOG=str(audit),
        NEURON_ENV_SERVER_MAX_AGE="1s",
    ) as service:
        put_blob(service)
        assert service.ask("PUT", entry(), manifest().to_json()).status == 201
        token = service.token("ops", Scope.ADMIN)
        end = time.monotonic() + DEADLINE
        while '"evict"' not in audit.read_text():
            assert service.ask("POST", "/v1/gc", {}, token=token).status == 200
            assert time.monotonic() < end
            time.sleep(0.1)
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    evicted = next(line for line in lines if line["action"] == "evict")
    assert (evicted["namespace"], evicted["key"]) == ("a", KEY)
    assert evicted["principal"].startswith("replica:")
