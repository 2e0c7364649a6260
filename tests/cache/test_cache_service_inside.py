"""The service's application without a process around it: traces, and failures that real stores do not show."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from cache_kit import parts
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from service_kit import OWNER, entries, leases

from cache_server.errors import StoreError
from cache_server.leases.records import Versioned
from cache_server.service.app import build_app
from cache_server.service.context import Context
from cache_server.service.settings import ServiceSettings
from cache_server.service.tracing import Tracing, open_tracing
from cache_server.service.watch import Watch, Watches

KEY = parts().key


async def ask(
    context: Context, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    """One request to the application; the status and the JSON of the answer."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        return await asyncio.get_running_loop().create_future()

    async def send(message: Any) -> None:
        sent.append(message)

    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()],
    }
    await build_app(context)(scope, receive, send)
    return sent[0]["status"], json.loads(b"".join(message.get("body", b"") for message in sent[1:]) or b"{}")


def run(store: Path, act: Callable[[Context], Awaitable[None]]) -> None:
    async def main() -> None:
        context = Context(ServiceSettings(str(store)))
        context.start()
        try:
            await act(context)
        finally:
            await context.close()

    asyncio.run(main())


def test_span_of_a_request_is_a_child_of_the_callers(tmp_path: Path) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    async def act(context: Context) -> None:
        context.tracing = Tracing(provider)
        parent = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "x-request-id": "r1"}
        await ask(context, "GET", entries(KEY), headers=parent)
        await ask(context, "GET", "/nothing", headers={"traceparent": "rubbish"})

    run(tmp_path, act)
    first, second = exporter.get_finished_spans()
    assert first.name == "GET /v1/namespaces/{ns}/entries/{key}"
    assert first.context is not None
    assert first.parent is not None
    assert f"{first.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert f"{first.parent.span_id:016x}" == "b7ad6b7169203331"
    assert dict(first.attributes or {})["http.response.status_code"] == 404
    assert dict(first.attributes or {})["neuron_env.request_id"] == "r1"
    assert second.parent is None


@pytest.mark.parametrize(
    "environ",
    [{}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_SDK_DISABLED": "true"}],
)
def test_traces_are_off_unless_the_environment_names_a_collector(environ: dict[str, str]) -> None:
    assert open_tracing(environ) is None


def test_traces_are_on_where_the_environment_names_a_collector() -> None:
    tracing = open_tracing({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"})
    assert tracing is not None
    tracing.close()


def test_failure_that_nobody_foresaw_shows_no_inside(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def act(context: Context) -> None:
        def broken(path: str, limit: int) -> bytes:
            raise KeyError("the inside of the program")

        context.backend.read = broken  # type: ignore[method-assign]
        status, problem = await ask(context, "GET", entries(KEY))
        assert (status, problem["type"]) == (500, "urn:neuron-env:cache:internal")
        assert "inside of the program" not in json.dumps(problem)
        assert problem["request_id"] in problem["hint"]

    run(tmp_path, act)
    assert any(record.exc_info for record in caplog.records)


def test_store_that_does_not_exclude_gets_no_leases(tmp_path: Path) -> None:
    async def act(context: Context) -> None:
        context.records.create_exclusive = lambda name, data: "1"  # type: ignore[method-assign]
        body = json.dumps({"owner": OWNER, "lease_seconds": 5}).encode()
        status, problem = await ask(context, "POST", leases(KEY, "acquire"), body)
        assert (status, problem["type"]) == (501, "urn:neuron-env:cache:no-leases")
        _, stats = await ask(context, "GET", "/v1/stats")
        assert stats["store"]["leases"] is False

    run(tmp_path, act)


class Records:
    """A store of one record that counts its reads and answers them when told to."""

    def __init__(self) -> None:
        self.reads = 0
        self.go = asyncio.Event()
        self.go.set()
        self.seen: Versioned | None = None
        self.error: Exception | None = None

    async def read(self) -> Versioned | None:
        self.reads += 1
        seen = self.seen
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return seen


def test_looks_at_the_same_time_are_one() -> None:
    async def main() -> None:
        records = Records()
        records.go.clear()
        watch = Watch(f"default/00/{KEY}", records.read)
        looks = [asyncio.ensure_future(watch.look()) for _ in range(1000)]
        await asyncio.sleep(0)
        records.go.set()
        await asyncio.gather(*looks)
        # Those who came after the first read had begun need one that began after they came.
        assert records.reads <= 2

    asyncio.run(main())


def test_slow_look_does_not_undo_what_was_written_meanwhile() -> None:
    async def main() -> None:
        records = Records()
        records.go.clear()
        watch = Watch(f"default/00/{KEY}", records.read)
        look = asyncio.ensure_future(watch.look())
        await asyncio.sleep(0)
        new = Versioned(b"{}", "2")
        watch.learn(new)
        records.seen = new
        records.go.set()
        assert (await look).version == "2"

    asyncio.run(main())


def test_unreadable_store_is_told_to_everybody_who_looks() -> None:
    async def main() -> None:
        records = Records()
        records.error = StoreError("gone")
        watch = Watch(f"default/00/{KEY}", records.read)
        found = await asyncio.gather(*(watch.look() for _ in range(10)), return_exceptions=True)
        assert all(isinstance(each, StoreError) for each in found)
        records.error = None
        assert (await watch.look()).version is None

    asyncio.run(main())


def test_one_poller_serves_every_waiter_of_a_key() -> None:
    async def main() -> None:
        reads = 0
        record = json.dumps(
            {
                "state": "held",
                "epoch": 1,
                "token": "t",
                "owner": OWNER,
                "lease_seconds": 600,
                "phase": "compiling",
                "acquired_at": 1.0,
                "beat": 0,
                "note": "",
            }
        ).encode()

        class Store:
            def read(self, name: str) -> Versioned:
                return Versioned(record, "1")

        async def call(act: Callable[..., Any], *args: Any) -> Any:
            nonlocal reads
            reads += 1
            return act(*args)

        watches = Watches(Store(), call, poll_seconds=0.05)  # type: ignore[arg-type]
        waiting = [asyncio.ensure_future(watches.wait(f"default/00/{KEY}", "1", 30.0)) for _ in range(500)]
        while watches.waiters < 500:
            await asyncio.sleep(0)
        before, begun = reads, time.monotonic()
        while reads - before < 5:
            await asyncio.sleep(0.01)
        assert reads - before <= (time.monotonic() - begun) / 0.05 + 1
        watches.drain()
        assert {sight.version for sight in await asyncio.gather(*waiting)} == {"1"}
        await watches.close()

    asyncio.run(main())
