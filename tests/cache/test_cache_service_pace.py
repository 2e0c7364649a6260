"""How much one principal may ask of a replica, and what its clients make of it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from cache_kit import eventually, parts
from client_kit import PATIENT
from prometheus_client import CollectorRegistry
from service_kit import OWNER, Service, leases

from cache_server.errors import PacedError
from cache_server.remote.options import RemoteOptions
from cache_server.remote.service import Service as RemoteService
from cache_server.remote.store import RemoteStore
from cache_server.resilience.effort import effort_of
from cache_server.service.errors import ProblemError
from cache_server.service.pace import Pace
from cache_server.trust.principal import Principal, Scope

Serve = Callable[..., Service]
JOB, NOBODY = Principal("job", Scope.WRITE), Principal("anonymous", Scope.WRITE)


def pace(clock: list[float], rate: float | None = 10.0, uploads: int | None = 2) -> Pace:
    return Pace(rate, uploads, CollectorRegistry(), clock=lambda: clock[0])


def test_a_burst_passes_and_then_the_rate_holds() -> None:
    clock = [0.0]
    it = pace(clock)
    assert sum(it.allows(JOB, "a") for _ in range(50)) == 20
    with pytest.raises(ProblemError) as refused:
        it.admit(JOB, "a")
    assert (refused.value.status, refused.value.headers["Retry-After"]) == (429, "1")
    clock[0] = 1.0
    assert sum(it.allows(JOB, "a") for _ in range(50)) == 10
    clock[0] = 1000.0
    assert sum(it.allows(JOB, "a") for _ in range(50)) == 20


def test_principals_have_limits_of_their_own_and_strangers_one_an_address() -> None:
    it = pace([0.0], rate=1.0)
    assert [it.allows(JOB, "a"), it.allows(JOB, "b"), it.allows(JOB, "c")] == [True, True, False]
    assert it.allows(Principal("other", Scope.READ), "a")
    assert [it.allows(NOBODY, "a") for _ in range(3)] == [True, True, False]
    assert it.allows(NOBODY, "b")


def test_who_sends_too_much_at_once_is_refused_until_a_body_has_ended() -> None:
    it = pace([0.0])
    with it.uploading(JOB, "a"):
        with it.uploading(JOB, "a"), pytest.raises(ProblemError, match="sends 2 blobs"), it.uploading(JOB, "a"):
            pass
        with it.uploading(JOB, "a"):
            pass


def test_no_limit_is_no_limit() -> None:
    it = pace([0.0], rate=None, uploads=None)
    assert all(it.allows(JOB, "a") for _ in range(1000))
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(it.uploading(JOB, "a"))


def test_a_client_waits_as_long_as_it_is_told_and_then_gets_its_answer(serve: Serve) -> None:
    service = serve(NEURON_ENV_SERVER_RATE_LIMIT="4")
    remote = RemoteService(RemoteOptions(service.url, timeout_seconds=PATIENT))
    store = RemoteStore(remote)
    with effort_of(120.0):
        blob = store.put_blob(b"neff")
        for number in range(14):
            assert store.read_manifest(parts(str(number)).key) is None
            # Blobs that are asked for often pass by the router: they count as well.
            assert store.read_blob(blob) == b"neff"
    assert remote.persistence.budget.spent > 0
    assert remote.breaker.opened == 0
    assert b'neuron_env_cache_rate_limited_total{limit="requests"}' in service.get("/metrics").data
    with effort_of(0.2), pytest.raises(PacedError):
        for _ in range(100):
            store.read_manifest(parts("x").key)
    remote.connection.close()


def test_the_holder_of_a_lease_is_never_refused(serve: Serve) -> None:
    service = serve(NEURON_ENV_SERVER_RATE_LIMIT="0.5")
    key = parts("held").key
    taken = service.post(leases(key, "acquire"), {"owner": OWNER, "lease_seconds": 60}).json()
    eventually(lambda: service.get(leases(key)).status == 429, "the limit is reached")
    refused = service.get(leases(key))
    assert (refused.status, refused.slug) == (429, "busy")
    assert 1 <= int(refused.headers["retry-after"]) <= 2
    holder = {"token": taken["token"], "epoch": taken["epoch"]}
    for _ in range(5):
        assert service.post(leases(key, "heartbeat"), holder).status == 200
    assert service.get("/healthz").status == 200


def in_flight(service: Service) -> int:
    [line] = re.findall(rb"^neuron_env_cache_requests_in_flight (\d+)", service.get("/metrics").data, re.MULTILINE)
    return int(line)


def test_uploads_beyond_the_limit_are_refused_before_their_body(serve: Serve, tmp_path: Path) -> None:
    service = serve(NEURON_ENV_SERVER_UPLOAD_LIMIT="1")
    data = os.urandom(200_000)
    path = f"/v1/namespaces/default/blobs/{hashlib.sha256(data).hexdigest()}"
    place = urlsplit(service.url)
    with socket.create_connection((place.hostname, place.port), timeout=60) as slow:
        head = f"PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
        slow.sendall(head.encode() + data[:1000])
        other = b"other"
        there = f"/v1/namespaces/default/blobs/{hashlib.sha256(other).hexdigest()}"
        eventually(lambda: service.request("PUT", there, other).status == 429, "the first upload is under way")
        slow.sendall(data[1000:])
        assert slow.recv(100).startswith(b"HTTP/1.1 201")
    assert eventually(lambda: service.request("PUT", there, other).status in (200, 201), "the first has ended")
    assert b'rate_limited_total{limit="uploads"}' in service.get("/metrics").data
