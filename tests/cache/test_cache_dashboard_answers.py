"""What the service answers to the dashboard: its files, and statistics that cost little however many look at them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import urllib3
from cache_kit import eventually
from dashboard_kit import Compiler
from service_kit import Service

from cache_server.service.gate import Principal, Scope
from cache_server.service.snapshots import Snapshot, Snapshots

Serve = Callable[..., Service]

PAGES = sorted(file.name for file in (files("cache_server.service") / "dashboard").iterdir())


def test_the_page_allows_nothing_from_elsewhere_and_nothing_inline(serve: Serve) -> None:
    service = serve(None, "--anonymous", "none")
    page = service.get("/")
    assert page.status == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'self'; ")
    assert "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert page.headers["referrer-policy"] == "no-referrer"
    for name in PAGES:
        part = service.get(f"/dashboard/{name}")
        assert part.status == 200
        assert part.headers["content-security-policy"] == policy
        text = part.data.decode().replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text
        assert "https://" not in text
        assert " style=" not in text
        assert " onclick=" not in text
        again = service.get(f"/dashboard/{name}", If_None_Match=part.headers["etag"])
        assert (again.status, again.data) == (304, b"")


def test_no_other_file_is_given_away(serve: Serve) -> None:
    service = serve()
    for name in ("nothing.js", "..%2Fapp.py", "%2e%2e", "", "index.html/x"):
        assert service.get(f"/dashboard/{name}").status == 404, name


def told_apart(service: Service, between: Callable[[], object]) -> bool:
    """Whether the statistics before `between` and after it are different ones."""
    known = service.get("/v1/stats").headers["etag"]
    between()
    answer = service.get("/v1/stats", If_None_Match=known)
    assert (answer.status, answer.data == b"") in ((200, False), (304, True))
    return answer.status == 200


def test_statistics_are_not_sent_again_until_they_say_something_new(serve: Serve, tmp_path: Path) -> None:
    service = serve()
    compiler = Compiler(service, tmp_path / "served")
    compiler.begin("graph")

    def age() -> float:
        return float(service.get("/v1/stats").json()["in_flight"][0]["age_seconds"])

    def grow_older() -> None:
        before = age()
        eventually(lambda: age() > before, "time goes by")

    # A service that has just started finds out about its store for a moment.
    eventually(lambda: not told_apart(service, grow_older), "time alone is no news")
    eventually(lambda: not told_apart(service, lambda: compiler.beat("acquired")), "a sign of life is no news")
    assert told_apart(service, lambda: compiler.beat("linking"))
    known = service.get("/v1/stats").headers["etag"]
    compiler.look()
    eventually(lambda: service.get("/v1/stats?max_age=1", If_None_Match=known).status == 200, "a lookup is news")


def test_the_history_is_sent_from_where_the_reader_has_it(serve: Serve, tmp_path: Path) -> None:
    service = serve()
    Compiler(service, tmp_path / "served").look()
    [line, *_] = eventually(lambda: service.get("/v1/stats").json()["history"], "the lookup counts")
    assert service.get(f"/v1/stats?since={line['at']}").json()["history"][0] == line
    assert service.get(f"/v1/stats?since={line['at'] + 3600}").json()["history"] == []


def test_of_a_fleet_that_starts_the_oldest_leases_are_enough(serve: Serve, tmp_path: Path) -> None:
    service = serve()
    compilers = [Compiler(service, tmp_path / "served", graph=f"{i}") for i in range(5)]
    for compiler in compilers:
        compiler.begin()
    stats = service.get("/v1/stats?flights=2").json()
    assert [flight["key"] for flight in stats["in_flight"]] == [compiler.key for compiler in compilers[:2]]
    assert stats["in_flight_total"] == 5
    assert len(service.get("/v1/stats?max_age=60").json()["in_flight"]) == 5
    assert len(service.get("/v1/stats?max_age=60&flights=0").json()["in_flight"]) == 0


def test_a_number_that_is_none_is_refused(serve: Serve) -> None:
    service = serve()
    for query in ("since=x", "since=-1", "since=nan", "max_age=inf", "max_age=", "flights=x"):
        answer = service.get(f"/v1/stats?{query}")
        assert (answer.status, answer.slug) == (400, "bad-request"), query
        assert "is not a number" in answer.json()["detail"]


EMPTY: dict[str, Any] = {"requests": {}, "in_flight": [], "history": []}


def test_an_owner_that_stays_silent_is_news_second_by_second() -> None:
    def etag(silent: float) -> str:
        flight = {"key": "k", "age_seconds": silent, "silent_seconds": silent, "lease_seconds": 15.0}
        return Snapshot({**EMPTY, "in_flight": [flight]}).etag

    assert etag(1.0) == etag(5.0)
    assert len({etag(5.0), etag(8.0), etag(9.0)}) == 3
    assert etag(8.0) == etag(8.4)


def test_those_who_look_at_the_same_time_are_answered_by_one_count() -> None:
    made = 0

    async def make(principal: Principal) -> dict[str, Any]:
        nonlocal made
        made += 1
        await asyncio.sleep(0)
        return {**EMPTY, "made": made}

    async def look() -> None:
        snapshots = Snapshots()
        everybody = Principal("a", Scope.READ)
        seen = await asyncio.gather(*(snapshots.of(everybody, make, max_age=60) for _ in range(50)))
        assert made == 1
        assert len({json.loads(one.body(0))["made"] for one in seen}) == 1
        assert (await snapshots.of(everybody, make, max_age=60)) is seen[0]
        # Whoever wants the present state gets it.
        assert json.loads((await snapshots.of(everybody, make, max_age=0)).body(0))["made"] == 2

    asyncio.run(look())


def test_nobody_is_answered_with_what_another_may_see() -> None:
    async def make(principal: Principal) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {**EMPTY, "for": principal.name}

    async def look() -> None:
        snapshots = Snapshots()
        views = {name: Principal(name, Scope.READ, frozenset({name})) for name in ("a", "b")}
        views["all"] = Principal("all", Scope.READ)
        for _ in range(2):
            seen = await asyncio.gather(*(snapshots.of(each, make, max_age=60) for each in views.values()))
            assert [json.loads(one.body(0))["for"] for one in seen] == list(views)
            assert len({one.etag for one in seen}) == 3

    asyncio.run(look())


def test_a_count_that_failed_is_made_again() -> None:
    answers: list[dict[str, Any] | Exception] = [OSError("once"), EMPTY]

    async def make(principal: Principal) -> dict[str, Any]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def look() -> None:
        snapshots, principal = Snapshots(), Principal("a", Scope.READ)
        with pytest.raises(OSError, match="once"):
            await snapshots.of(principal, make, max_age=60)
        assert json.loads((await snapshots.of(principal, make, max_age=60)).body(0)) == EMPTY

    asyncio.run(look())


@pytest.fixture
def silence() -> Iterator[str]:
    """The URL of an S3 that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        taken: list[socket.socket] = []

        def take() -> None:
            try:
                while True:
                    taken.append(listener.accept()[0])
            except OSError:
                return

        thread = threading.Thread(target=take)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        for each in taken:
            each.close()


def test_a_store_that_hangs_does_not_hide_the_statistics(serve: Serve, silence: str) -> None:
    service = serve(
        "s3://bucket/prefix",
        "--anonymous",
        "read",
        AWS_ENDPOINT_URL=silence,
        AWS_ACCESS_KEY_ID="k",
        AWS_SECRET_ACCESS_KEY="s",
        AWS_DEFAULT_REGION="us-east-1",
    )
    # More than the service has threads for its store, all of them waiting for it.
    stuck = [threading.Thread(target=_ask, args=(service, f"{i:064x}"), daemon=True) for i in range(20)]
    for each in stuck:
        each.start()
    begun = time.monotonic()
    answer = service.get("/v1/stats?max_age=1")
    assert answer.json()["store"]["reachable"] is False
    assert time.monotonic() - begun < 30
    service.kill()
    for each in stuck:
        each.join()


def _ask(service: Service, key: str) -> None:
    with contextlib.suppress(urllib3.exceptions.HTTPError):
        service.get(f"/v1/namespaces/default/entries/{key}")
