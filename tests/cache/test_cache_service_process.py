"""The service as a process: what it prints, how it ends, what it logs, what machines read of it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cache_kit import eventually, parts
from openapi_spec_validator import validate
from prometheus_client.parser import text_string_to_metric_families
from service_kit import OWNER, Service, entries, leases

from cache_server.errors import CacheError
from cache_server.service.gate import Scope
from cache_server.service.route import Route
from cache_server.service.routes import all_routes
from cache_server.service.settings import ServiceSettings

pytestmark = pytest.mark.fleet

KEY = parts().key
Serve = Callable[..., Service]


def test_start_says_what_is_served_to_whom_and_whether_leases_are_proven(serve: Serve, tmp_path: Path) -> None:
    service = serve(None, "--anonymous", "read")
    assert str(tmp_path / "served") in service.said("store")
    assert "read" in service.said("access")
    assert service.said("clients set").endswith(f"NEURON_ENV_CACHE_URL={service.url}")
    assert "proven" in service.said("leases")


def test_drain_answers_those_who_wait_and_ends_well(serve: Serve) -> None:
    service = serve(None, "--drain-delay", "30", "--drain-seconds", "20")
    wish = {"owner": OWNER, "lease_seconds": 60}
    lease = service.post(leases(KEY, "acquire"), wish).json()
    answers = []
    waiting = threading.Thread(
        target=lambda: answers.append(service.get(f"{leases(KEY)}?after={lease['version']}&wait=60"))
    )
    waiting.start()
    eventually(lambda: service.get("/v1/stats").json()["in_flight"][0]["waiters"], "it waits")
    assert service.get("/readyz").status == 200
    service.terminate()
    waiting.join(timeout=60)
    assert answers[0].json()["state"] == "held"
    # It still listens, so that load balancers and clients can tell.
    unready = service.get("/readyz")
    assert (unready.status, unready.slug) == (503, "draining")
    assert service.get("/healthz").status == 200
    refused = service.post(leases("0" * 64, "acquire"), wish)
    assert (refused.status, refused.slug, refused.headers["retry-after"]) == (503, "draining", "1")
    beat = {"token": lease["token"], "epoch": lease["epoch"]}
    assert service.post(leases(KEY, "heartbeat"), beat).status == 200
    service.terminate()  # asked twice: at once
    assert service.wait() == 0


def test_drain_lets_a_running_request_end(serve: Serve) -> None:
    service = serve()
    host, _, port = service.url.removeprefix("http://").partition(":")
    body = json.dumps({"owner": OWNER, "lease_seconds": 60}).encode()
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        head = f"POST /v1/namespaces/default/lookup HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body[:5])
        eventually(
            lambda: b"requests_in_flight 2" in service.get("/metrics").data, "the request has begun beside this one"
        )
        service.terminate()
        eventually(lambda: "draining" in service.log.read_text(), "it drains")
        connection.sendall(body[5:])
        assert connection.recv(1000).startswith(b"HTTP/1.1 400")
    assert service.wait() == 0


def test_request_that_never_ends_does_not_hold_up_the_end(serve: Serve) -> None:
    service = serve(None, "--drain-seconds", "1")
    host, _, port = service.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(b"POST /v1/namespaces/default/lookup HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
        eventually(lambda: b"requests_in_flight 2" in service.get("/metrics").data, "the request has begun")
        service.terminate()
        assert service.wait() == 0


def test_log_has_one_line_a_request_and_no_secret(serve: Serve) -> None:
    service = serve()
    service.get(entries(KEY) + "?secret=in-the-query", X_Request_Id="r1")
    assert service.get(entries(KEY), X_Request_Id="r0", Authorization="Bearer nec_a_hush").status == 401
    service.request("LOCK", "/coffee-" + "x" * 50, X_Request_Id="r2")
    eventually(lambda: '"r2"' in service.log.read_text(), "both are logged")
    lines = {line.get("request_id"): line for line in service.logged()}
    first = lines["r1"]
    assert first.keys() >= {"time", "level", "method", "status", "bytes", "seconds", "principal", "namespace"}
    assert (first["path"], first["status"]) == ("/v1/namespaces/{ns}/entries/{key}", 404)
    assert (first["principal"], first["namespace"]) == ("anonymous", "default")
    assert (lines["r2"]["path"], lines["r2"]["status"]) == ("(none)", 404)
    text = service.log.read_text()
    assert "hush" not in text
    assert "in-the-query" not in text


def test_metrics_are_well_formed_and_their_labels_bounded(serve: Serve) -> None:
    service = serve()
    for number in range(30):
        service.get(entries(f"{number:064x}"))
        service.request("LOCK", f"/{number}")
    text = service.get("/metrics").data.decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    requests = families["neuron_env_cache_requests"].samples
    counts = {(s.labels["method"], s.labels["route"]): s.value for s in requests if s.name.endswith("_total")}
    assert counts[("GET", "/v1/namespaces/{ns}/entries/{key}")] == 30
    assert counts[("other", "(none)")] == 30
    assert families["neuron_env_cache_lookups"].samples
    assert len(text.splitlines()) < 500


def test_openapi_document_is_valid_and_has_every_route(serve: Serve) -> None:
    document = serve().get("/openapi.json").json()
    validate(document)
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    # WebDAV's own methods have no place in such a document; their paths are there by GET.
    routes = {(route.method, route.path.replace(":path", "")) for route in all_routes()}
    assert {(method, path) for method, path in routes if method not in ("PROPFIND", "MKCOL")} == described
    assert {path for _, path in routes} == set(document["paths"])


def some_path(route: Route) -> str:
    """A path that the route takes."""
    return re.sub(r":\w+}", "}", route.path).format(
        ns="default", key="0" * 64, sha256="0" * 64, id="0" * 32, rest="0" * 64, job="train", part="h-1", file="main.js"
    )


def test_every_route_but_the_machines_own_asks_for_a_scope() -> None:
    free = {route.path for route in all_routes() if route.scope is Scope.NONE}
    assert free <= {"/", "/dashboard/{file}", "/metrics", "/healthz", "/readyz", "/openapi.json"}
    for route in all_routes():
        changes = route.method in ("PUT", "PATCH", "DELETE", "POST") and not route.path.endswith("/lookup")
        assert not changes or route.scope >= Scope.WRITE, route


def test_strangers_are_turned_away(serve: Serve) -> None:
    service = serve(None, "--anonymous", "none")
    for route in all_routes():
        path = some_path(route)
        status = service.request(route.method, path).status
        assert (status == 401) == (route.scope is not Scope.NONE), (route.method, route.path, status)
    answer = service.get("/v1/stats")
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_readers_may_not_write(serve: Serve) -> None:
    service = serve(None, "--anonymous", "read")
    for route in all_routes():
        path = some_path(route)
        if route.scope >= Scope.WRITE:
            answer = service.request(route.method, path, b"{}")
            assert (answer.status, answer.slug) == (403, "forbidden"), (route.method, route.path)


def test_service_beyond_this_host_wants_to_be_told_who_may_do_what(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "cli.main", "cache", "serve", str(tmp_path), "--listen", "0.0.0.0:0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    assert "can be reached from other hosts" in ended.stderr
    assert "--anonymous" in ended.stderr


def test_address_that_is_taken_is_said_in_one_line(serve: Serve, tmp_path: Path) -> None:
    service = serve()
    address = service.url.removeprefix("http://")
    ended = subprocess.run(
        [sys.executable, "-m", "cli.main", "cache", "serve", str(tmp_path), "--listen", address],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    assert f"cannot listen on {address}" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_program_for_containers_takes_everything_from_the_environment(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "NEURON_ENV_SERVER_STORE": str(tmp_path / "store"),
        "NEURON_ENV_SERVER_LISTEN": "127.0.0.1:0",
        "NEURON_ENV_SERVER_LOG_FORMAT": "json",
    }
    with subprocess.Popen(
        [sys.executable, "-m", "cli.cache_serve"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline().startswith("listening on http://127.0.0.1:")
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=60) == 0


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "no store"),
        ({"store": "http://other:7878"}, "not in another service"),
        ({"store": "/s", "listen": "7878"}, "not an address"),
        ({"store": "/s", "listen": "h:99999"}, "not an address"),
        ({"store": "/s", "anonymous": "admin"}, "no such scope"),
        ({"store": "/s", "tls_cert": Path("c")}, "both a certificate and its key"),
        ({"store": "/s", "client_ca": Path("c")}, "need TLS"),
        ({"store": "/s", "quotas": {"Team A": 1}}, "not a cache namespace"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_the_reason(values: dict[str, object], said: str) -> None:
    with pytest.raises(CacheError, match=said):
        ServiceSettings.from_environment({}, **values)


def test_environment_is_read_and_options_win_over_it() -> None:
    environ = {
        "NEURON_ENV_SERVER_STORE": "/s",
        "NEURON_ENV_SERVER_CAPACITY": "10GiB",
        "NEURON_ENV_SERVER_QUOTAS": "a=1GiB, b=5MB",
        "NEURON_ENV_SERVER_MAX_AGE": "30d",
        "NEURON_ENV_SERVER_REDIRECT": "no",
        "NEURON_ENV_SERVER_LISTEN": "[::1]:80",
    }
    settings = ServiceSettings.from_environment(environ, capacity=5)
    assert (settings.capacity, dict(settings.quotas)) == (5, {"a": 1 << 30, "b": 5_000_000})
    assert (settings.max_age, settings.redirect, settings.address) == (30 * 86400.0, False, ("::1", 80))
    assert settings.anonymous_scope == "write"
    with pytest.raises(CacheError, match="NEURON_ENV_SERVER_CAPACITY"):
        ServiceSettings.from_environment({**environ, "NEURON_ENV_SERVER_CAPACITY": "much"})


def test_unexpected_failure_shows_no_inside(serve: Serve, tmp_path: Path) -> None:
    """A manifest in the store's place that no code foresaw must not become a traceback in an answer."""
    service = serve()
    begun = time.monotonic()
    service.request("POST", "/v1/namespaces/default/lookup", b"\xff\xfe")
    service.request("POST", "/v1/namespaces/default/lookup", b"[" * 100_000)
    assert time.monotonic() - begun < 60
    assert all(line["level"] != "error" for line in service.logged())
