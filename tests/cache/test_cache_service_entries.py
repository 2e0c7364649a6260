"""Entries, lookup and listing through the service."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cache_kit import eventually, open_cache, parts
from service_kit import Service, entries, manifest

from cache_server.manifest import Blob
from cache_server.storage import open_storage

KEY = parts().key
Serve = Callable[..., Service]


def put(service: Service, tmp_path: Path, ir: str = "module {}", data: bytes = b"neff", epoch: int = 0) -> int:
    blob = open_storage(str(tmp_path / "served")).store.put_blob(data)
    made = manifest(parts(ir), blob, epoch=epoch)
    return service.request("PUT", entries(made.key), made.to_json()).status


def test_entry_is_what_a_direct_client_made(serve: Serve, tmp_path: Path) -> None:
    direct = open_cache(tmp_path, url=str(tmp_path / "served"))
    direct.get_or_compile(parts(), lambda: b"neff", label="decode")
    service = serve()
    answer = service.get(entries(KEY))
    known = direct.peek(parts())
    assert known is not None
    assert (answer.status, answer.data) == (200, known.encode())
    assert service.request("HEAD", entries(KEY)).headers["etag"] == answer.headers["etag"]
    again = service.get(entries(KEY), If_None_Match=answer.headers["etag"])
    assert (again.status, again.data) == (304, b"")
    assert service.get(entries(KEY), If_None_Match='"another"').status == 200


def test_absent_entry_is_a_problem_document_with_the_requests_id(serve: Serve) -> None:
    service = serve()
    answer = service.get(entries(KEY), X_Request_Id="job-17.rank-3")
    assert (answer.status, answer.slug) == (404, "not-found")
    assert answer.headers["x-request-id"] == answer.json()["request_id"] == "job-17.rank-3"
    made = service.get(entries(KEY), X_Request_Id="{}<script>").headers["x-request-id"]
    assert made.isalnum()


def test_put_creates_once_and_keeps_what_is_there(serve: Serve, tmp_path: Path) -> None:
    service = serve()
    assert put(service, tmp_path) == 201
    assert put(service, tmp_path) == 200
    assert put(service, tmp_path, data=b"other") == 409
    assert put(service, tmp_path, data=b"other", epoch=1) == 201
    absent = manifest(parts("third"), Blob("0" * 64, 4))
    answer = service.request("PUT", entries(absent.key), absent.to_json())
    assert (answer.status, answer.json()["missing"]) == (409, ["0" * 64])


def test_lookup_brings_many_at_once_and_leaves_out_what_is_absent(serve: Serve, tmp_path: Path) -> None:
    service = serve()
    there = [parts(f"module {{ {number} }}") for number in range(20)]
    for number in range(20):
        assert put(service, tmp_path, f"module {{ {number} }}") == 201
    keys = [each.key for each in there] + ["0" * 64]
    found = service.post("/v1/namespaces/default/lookup", {"keys": keys}).json()["entries"]
    assert set(found) == {each.key for each in there}
    assert found[there[0].key] == service.get(entries(there[0].key)).json()
    for wrong in ({"keys": ["../../etc/passwd"]}, {"keys": "x"}, {}, {"keys": ["0" * 64] * 10_001}):
        assert service.post("/v1/namespaces/default/lookup", wrong).status == 400


def listed(service: Service) -> list[dict[str, Any]]:
    seen: list[dict[str, Any]] = []
    cursor = ""
    while cursor is not None:
        page = service.get(f"/v1/namespaces/default/entries?limit=3&sort=size{cursor and f'&cursor={cursor}'}").json()
        seen += page["entries"]
        cursor = page["next"]
    return seen


def test_listing_gives_every_entry_once_page_by_page(serve: Serve, tmp_path: Path) -> None:
    service = serve()
    for number in range(7):
        put(service, tmp_path, f"module {{ {number} }}", data=b"x" * number)
    # Hits need no index; listings come from it, a moment later.
    seen = eventually(lambda: len(found := listed(service)) == 7 and found, "all are listed")
    assert [entry["size"] for entry in seen] == [6, 5, 4, 3, 2, 1, 0]
    assert len({entry["key"] for entry in seen}) == 7
    for wrong in ("limit=0", "limit=x", "sort=name", "kind=x", "cursor=%00"):
        assert service.get(f"/v1/namespaces/default/entries?{wrong}").status == 400


def test_namespaces_do_not_see_each_other(serve: Serve, tmp_path: Path) -> None:
    service = serve()
    put(service, tmp_path)
    assert service.get(entries(KEY, "other")).status == 404
    assert service.get("/v1/namespaces/other/entries").json()["entries"] == []
    assert service.post("/v1/namespaces/other/lookup", {"keys": [KEY]}).json()["entries"] == {}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/v1/namespaces/UPPER/entries/" + "0" * 64, 400),
        ("/v1/namespaces/default/entries/" + "0" * 63, 400),
        ("/v1/namespaces/default/entries/" + "G" * 64, 400),
        ("/v1/namespaces/..%2f..%2fx/entries/" + "0" * 64, 404),
        ("/v1/namespaces/default/leases/%2e%2e", 400),
        ("/nothing", 404),
        ("/v1/namespaces/default/leases/" + "0" * 64 + "?wait=soon", 400),
        ("/v1/namespaces/default/leases/" + "0" * 64 + "?wait=nan", 400),
    ],
)
def test_senseless_path_is_refused(serve: Serve, path: str, status: int) -> None:
    assert serve().get(path).status == status


def test_body_that_is_too_long_is_refused(serve: Serve) -> None:
    answer = serve().request("PUT", entries(KEY), b" " * (1 << 20) + b" ")
    assert (answer.status, answer.slug) == (413, "too-large")


def test_damaged_entry_is_a_miss_and_set_aside(serve: Serve, tmp_path: Path) -> None:
    service = serve()
    put(service, tmp_path)
    store = open_storage(str(tmp_path / "served")).store
    store.backend.write(store.entry_path(KEY), b"{")
    assert service.get(entries(KEY)).status == 404
    assert len(list(store.backend.walk("quarantine"))) == 1


def test_unwritable_store_is_said_to_be_unavailable_and_serves_what_it_has(serve: Serve, tmp_path: Path) -> None:
    service = serve()
    put(service, tmp_path)
    eventually(lambda: service.get("/v1/stats").json()["store"]["leases"], "leases are proven")
    (tmp_path / "served").rename(tmp_path / "away")
    (tmp_path / "served").write_text("in the way")
    answer = service.post(
        "/v1/namespaces/default/leases/" + KEY + "/acquire",
        {"owner": {"host": "h", "pid": 1, "user": "u", "incarnation": ""}, "lease_seconds": 5},
    )
    assert (answer.status, answer.slug, answer.headers["retry-after"]) == (503, "store-unavailable", "1")
    assert "traceback" not in answer.data.decode().lower()
    (tmp_path / "served").unlink()
    (tmp_path / "away").rename(tmp_path / "served")
    assert service.get(entries(KEY)).status == 200


def test_statistics_count_what_was_asked(serve: Serve, tmp_path: Path) -> None:
    service = serve()
    put(service, tmp_path)
    for _ in range(3):
        service.get(entries(KEY))
    service.get(entries("0" * 64))

    def counted() -> bool:
        counts = service.get("/v1/stats").json()["namespaces"].get("default", {})
        wanted = {"hits": 3, "misses": 1, "stores": 1, "seconds_saved": 7.5}
        return {name: counts.get(name) for name in wanted} == wanted

    eventually(counted, "all are counted")
    stats = service.get("/v1/stats").json()
    assert stats["store"]["reachable"] is True
    assert (stats["requests"]["hits"], stats["requests"]["misses"]) == (3, 1)
    assert sum(minute["hits"] for minute in stats["history"]) == 3
    assert service.get("/v1/namespaces/default/stats").json()["hits"] == 3
