"""Leases through the service: a real process over a directory, asked by plain HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cache_kit import Fleet, eventually, parts
from service_kit import OWNER, Answer, Service, entries, leases, manifest

from cache_server.leases.record import State, decode_record
from cache_server.manifest import Blob, Failure
from cache_server.service import desk
from cache_server.storage import open_storage
from neuron_runtime.compiler.errors import FailureKind

pytestmark = pytest.mark.fleet

KEY = parts().key
Serve = Callable[..., Service]


def wish(seconds: float = 60.0, **more: Any) -> dict[str, Any]:
    return {"owner": OWNER, "lease_seconds": seconds, **more}


def take(service: Service, seconds: float = 60.0, **more: Any) -> dict[str, Any]:
    answer = service.post(leases(KEY, "acquire"), wish(seconds, **more))
    assert answer.status == 201, answer.data
    return answer.json()


def held(lease: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"token": lease["token"], "epoch": lease["epoch"], **more}


def put_blob(tmp_path: Path, data: bytes = b"neff") -> Blob:
    return open_storage(str(tmp_path / "served")).store.put_blob(data)


def result(lease: dict[str, Any], blob: Blob) -> dict[str, Any]:
    return manifest(parts(), blob, epoch=lease["epoch"]).to_json()


def failure(lease: dict[str, Any]) -> dict[str, Any]:
    error = Failure(FailureKind.COMPILER_ERROR, "no such operator", time.time() + 3600)
    return manifest(parts(), None, epoch=lease["epoch"], failure=error).to_json()


class Waiter(threading.Thread):
    """A long poll on its own thread."""

    def __init__(self, service: Service, after: str, wait: float = 60.0) -> None:
        super().__init__()
        self._ask = lambda: service.get(f"{leases(KEY)}?after={after}&wait={wait}")
        self.answer: Answer | None = None
        self.at = 0.0
        self.start()

    def run(self) -> None:
        self.answer = self._ask()
        self.at = time.monotonic()

    def document(self) -> dict[str, Any]:
        self.join(timeout=60)
        assert self.answer is not None
        assert self.answer.status == 200, self.answer.data
        return self.answer.json()


def waiters(service: Service) -> int:
    return sum(flight["waiters"] for flight in service.get("/v1/stats").json()["in_flight"])


def test_key_goes_to_one_and_is_published_for_all(serve: Serve, tmp_path: Path) -> None:
    service = serve()
    assert service.get(leases(KEY)).json() == {"version": None, "state": "vacant", "record": None, "expired": False}
    lease = take(service, label="decode")
    assert lease["epoch"] == 1
    refused = service.post(leases(KEY, "acquire"), wish())
    assert (refused.status, refused.slug) == (409, "conflict")
    document = refused.json()["lease"]
    assert (document["state"], document["record"]["owner"], document["record"]["label"]) == ("held", OWNER, "decode")
    published = service.post(leases(KEY, "publish"), held(lease, manifest=result(lease, put_blob(tmp_path))))
    assert published.status == 201
    assert service.get(leases(KEY)).json()["state"] == "settled"
    entry = service.get(entries(KEY))
    assert (entry.status, entry.json()) == (200, service.get(leases(KEY)).json()["record"]["manifest"])


def test_token_is_its_holders_alone(serve: Serve) -> None:
    service = serve()
    lease = take(service)
    seen = [service.get(leases(KEY)), service.post(leases(KEY, "acquire"), wish()), service.get("/v1/stats")]
    seen += [service.get("/v1/namespaces/default/leases")]
    assert all(lease["token"].encode() not in answer.data for answer in seen)
    service.close()
    assert lease["token"] not in service.log.read_text()


@pytest.mark.parametrize("act", ["heartbeat", "publish", "fail"])
def test_wrong_token_or_epoch_changes_nothing(serve: Serve, tmp_path: Path, act: str) -> None:
    service = serve()
    lease = take(service)
    blob = put_blob(tmp_path)
    for wrong in ({"token": "0" * 32, "epoch": 1}, {"token": lease["token"], "epoch": 2}):
        body = {**wrong, "manifest": result(wrong, blob)}
        answer = service.post(leases(KEY, act), body)
        assert (answer.status, answer.slug) == (409, "lease-lost")
    assert service.get(leases(KEY)).json()["version"] == lease["version"]
    assert service.get(entries(KEY)).status == 404


def test_repeated_acts_are_answered_like_the_first(serve: Serve, tmp_path: Path) -> None:
    service = serve()
    token = "ab" * 16
    first, again = take(service, token=token), take(service, token=token)
    assert again == first
    body = held(first, manifest=result(first, put_blob(tmp_path)))
    answers = [service.post(leases(KEY, "publish"), body) for _ in range(2)]
    assert [answer.status for answer in answers] == [201, 201]
    assert answers[0].json() == answers[1].json()
    assert service.post(leases(KEY, "heartbeat"), held(first)).status == 200
    other = {**body, "manifest": result(first, put_blob(tmp_path, b"another"))}
    assert service.post(leases(KEY, "publish"), other).slug == "lease-lost"


def test_nothing_is_published_whose_blobs_are_missing(serve: Serve) -> None:
    service = serve()
    lease = take(service)
    absent = Blob("0" * 64, 4)
    answer = service.post(leases(KEY, "publish"), held(lease, manifest=result(lease, absent)))
    assert (answer.status, answer.slug, answer.json()["missing"]) == (409, "missing-blobs", [absent.sha256])
    assert service.get(leases(KEY)).json()["state"] == "held"


def test_manifest_of_another_key_or_epoch_is_refused(serve: Serve, tmp_path: Path) -> None:
    service = serve()
    lease = take(service)
    blob = put_blob(tmp_path)
    for wrong in (manifest(parts("other"), blob, epoch=1), manifest(parts(), blob, epoch=7)):
        answer = service.post(leases(KEY, "publish"), held(lease, manifest=wrong.to_json()))
        assert (answer.status, answer.slug) == (400, "bad-request")


def test_failure_that_is_remembered_settles_the_key(serve: Serve) -> None:
    service = serve()
    lease = take(service)
    assert service.post(leases(KEY, "fail"), held(lease, note="no", manifest=failure(lease))).status == 200
    assert service.get(entries(KEY)).json()["failure"]["text"] == "no such operator"
    [told] = eventually(lambda: service.get("/v1/stats").json()["recent_failures"], "the failure is counted")
    assert (told["key"], told["kind"], told["text"]) == (KEY, "compiler_error", "no such operator")
    # It may be tried again over exactly what was seen.
    version = service.get(leases(KEY)).json()["version"]
    assert service.post(leases(KEY, "acquire"), wish()).status == 409
    assert take(service, over=version)["epoch"] == 2


def test_failure_that_is_not_remembered_frees_the_key(serve: Serve) -> None:
    service = serve()
    lease = take(service)
    assert service.post(leases(KEY, "fail"), held(lease, note="out of memory")).status == 200
    document = service.get(leases(KEY)).json()
    assert (document["state"], document["record"]["note"], document["expired"]) == ("vacant", "out of memory", False)
    assert take(service)["epoch"] == 2


def test_silent_owner_is_taken_over_and_fenced(serve: Serve, tmp_path: Path) -> None:
    service = serve()
    lease = take(service, 0.5)
    waiter = Waiter(service, lease["version"])
    document = waiter.document()
    assert (document["state"], document["expired"], document["version"]) == ("vacant", True, lease["version"])
    successor = take(service)
    assert successor["epoch"] == 2
    late = service.post(leases(KEY, "publish"), held(lease, manifest=result(lease, put_blob(tmp_path))))
    assert (late.status, late.slug) == (409, "lease-lost")
    assert "epoch 2" in late.json()["detail"]


def test_renewing_owner_is_not_taken_over(serve: Serve) -> None:
    service = serve()
    lease = take(service, 2.0)
    end = time.monotonic() + 3.0
    while time.monotonic() < end:
        renewed = service.post(leases(KEY, "heartbeat"), held(lease, phase="compiling"))
        assert renewed.status == 200
        assert service.get(leases(KEY)).json()["state"] == "held"
        threading.Event().wait(0.1)


def test_dead_process_of_this_host_is_taken_over_at_once(serve: Serve, tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, str(tmp_path / "served"))
    child = fleet.start("here", real_host=True, dies_at="compiling", lease=3600.0)
    fleet.go(child)
    child.wait(timeout=60)
    service = serve()
    assert service.get(leases(KEY)).json()["expired"] is True
    assert take(service)["epoch"] == 2
    fleet.stop()


def test_waiters_are_told_of_a_publish_and_not_of_renewals(serve: Serve, tmp_path: Path) -> None:
    service = serve()
    lease = take(service)
    service.post(leases(KEY, "heartbeat"), held(lease, phase="compiling"))
    version = service.get(leases(KEY)).json()["version"]
    asked = [Waiter(service, version) for _ in range(8)]
    eventually(lambda: waiters(service) == 8, "all wait")
    service.post(leases(KEY, "heartbeat"), held(lease, phase="compiling"))
    assert waiters(service) == 8
    service.post(leases(KEY, "publish"), held(lease, manifest=result(lease, put_blob(tmp_path))))
    assert {waiter.document()["state"] for waiter in asked} == {"settled"}


def test_wait_ends_when_its_time_is_over(serve: Serve) -> None:
    service = serve()
    lease = take(service)
    answer = service.get(f"{leases(KEY)}?after={lease['version']}&wait=0.2").json()
    assert (answer["state"], answer["version"]) == ("held", lease["version"])


def test_waiter_that_hangs_up_is_forgotten(serve: Serve) -> None:
    import socket

    service = serve()
    lease = take(service)
    host, _, port = service.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as connection:
        path = f"{leases(KEY)}?after={lease['version']}&wait=60"
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        eventually(lambda: waiters(service) == 1, "it waits")
    eventually(lambda: waiters(service) == 0, "it is forgotten")


def test_change_by_another_writer_of_the_store_reaches_waiters(serve: Serve, tmp_path: Path) -> None:
    service = serve()
    lease = take(service)
    waiter = Waiter(service, lease["version"])
    eventually(lambda: waiters(service) == 1, "it waits")
    storage = open_storage(str(tmp_path / "served"))
    name = storage.store.record_name(KEY)
    seen = storage.records.read(name)
    assert seen is not None
    record = decode_record(seen.data, key=KEY)
    storage.records.compare_and_swap(name, seen.version, record.released("gave up").encode())
    assert waiter.document()["record"]["note"] == "gave up"


def test_owner_whose_lease_an_administrator_ended_is_fenced(serve: Serve, tmp_path: Path) -> None:
    service = serve()
    lease = take(service)
    storage = open_storage(str(tmp_path / "served"))
    name = storage.store.record_name(KEY)
    seen = storage.records.read(name)
    assert seen is not None
    freed = desk.free(storage.records, name, seen, "admin")
    assert decode_record(freed.data, key=KEY).state is State.FREE
    assert service.post(leases(KEY, "heartbeat"), held(lease)).slug == "lease-lost"
    assert take(service)["epoch"] == 2


def test_direct_client_and_service_exclude_each_other(serve: Serve, tmp_path: Path) -> None:
    service = serve()
    fleet = Fleet(tmp_path, str(tmp_path / "served"))
    child = fleet.start("direct", seconds=3.0, lease=60.0)
    fleet.go(child)
    eventually(lambda: service.get(leases(KEY)).json()["state"] == "held", "the direct client has the key")
    assert service.post(leases(KEY, "acquire"), wish()).status == 409
    waiter = Waiter(service, service.get(leases(KEY)).json()["version"])
    fleet.result(child)
    document = waiter.document()
    while document["state"] == "held":
        document = Waiter(service, document["version"]).document()
    assert document["state"] == "settled"
    assert service.get(entries(KEY)).status == 200
    fleet.stop()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"owner": 1, "lease_seconds": 5}',
        b'{"owner": {"host": "h", "pid": 1, "user": "u", "incarnation": ""}, "lease_seconds": 1e9}',
        b'{"owner": {"host": "h", "pid": 1, "user": "u", "incarnation": ""}, "lease_seconds": NaN}',
    ],
)
def test_senseless_acquire_is_refused(serve: Serve, body: bytes) -> None:
    service = serve()
    answer = service.request("POST", leases(KEY, "acquire"), body)
    assert (answer.status, answer.slug) == (400, "bad-request")
    assert service.get(leases(KEY)).json()["version"] is None
