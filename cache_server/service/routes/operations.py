"""What operators and their machines ask."""

from __future__ import annotations

import asyncio
import functools
import math
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from cache_server.leases.observer import Held
from cache_server.service.body import json_answer, read_object
from cache_server.service.conditions import matches
from cache_server.service.context import Context
from cache_server.service.errors import ProblemError, bad_request
from cache_server.service.gate import Principal, Scope
from cache_server.service.openapi import openapi_document
from cache_server.service.route import Query, Route
from cache_server.service.watch import Watch
from neuron_runtime.version import VERSION

_SMALL = 64 * 1024
_PATIENCE = 2.0  # seconds that the store has to show that it is there
_SECONDS = {"type": "number", "minimum": 0}


async def stats(context: Context, request: Request) -> Response:
    """Statistics; for those who look often there is `max_age`, `since`, `flights` and If-None-Match."""
    principal: Principal = request.scope["neuron_env"].principal
    max_age, since = _number(request, "max_age"), _number(request, "since")
    snapshot = await context.snapshots.of(principal, functools.partial(_stats, context), max_age=min(max_age, 60.0))
    headers = {"Cache-Control": "no-store", "ETag": snapshot.etag}
    if matches(request.headers.get("if-none-match"), snapshot.etag):
        return Response(status_code=304, headers=headers)
    flights = int(_number(request, "flights")) if "flights" in request.query_params else None
    return Response(snapshot.body(since, flights), headers=headers, media_type="application/json")


async def namespace_stats(context: Context, request: Request) -> Response:
    namespace = request.path_params["ns"]
    everything = await _stats(context, Principal("", Scope.READ, frozenset({namespace})))
    holding = await asyncio.to_thread(context.index.holding, namespace)
    return json_answer(
        {
            "namespace": namespace,
            **holding,
            **everything["namespaces"].get(namespace, {}),
            **{name: everything[name] for name in ("index", "in_flight", "recent_failures", "recent_evictions")},
        }
    )


async def collect(context: Context, request: Request) -> Response:
    principal: Principal = request.scope["neuron_env"].principal
    if principal.namespaces is not None:
        raise ProblemError("forbidden", f"{principal.name} administers some namespaces, and this is about all of them")
    fields = await read_object(request, _SMALL)
    dry_run = fields.raw().get("dry_run") is True
    request.scope["neuron_env"].note = {"dry_run": dry_run}
    return json_answer(await context.space.collect(dry_run=dry_run))


async def metrics(context: Context, request: Request) -> Response:
    return Response(context.metrics.text(), media_type="text/plain; version=0.0.4")


async def healthz(context: Context, request: Request) -> Response:
    return json_answer({"status": "ok"})


async def readyz(context: Context, request: Request) -> Response:
    if context.draining.is_set():
        raise ProblemError("draining", "this replica is about to end")
    if not await context.reachable():
        raise ProblemError("store-unavailable", f"the store at {context.backend.url} does not answer")
    return json_answer({"status": "ready"})


async def openapi(context: Context, request: Request) -> Response:
    from cache_server.service.routes import all_routes

    return json_answer(openapi_document(all_routes()))


def _number(request: Request, name: str) -> float:
    text = request.query_params.get(name, "0")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise bad_request(f"{name} is not a number, 0 or more: {text[:40]!r}")
    return value


async def _stats(context: Context, principal: Principal) -> dict[str, Any]:
    # Not in the store's threads: when the store hangs they all do, and that is when somebody looks.
    found = await asyncio.to_thread(context.index.totals)
    reachable = await context.reachable(within=_PATIENCE)
    namespaces = {name: value for name, value in found["namespaces"].items() if principal.sees(name)}
    flights = [
        flight
        for watch, held in context.watches.held()
        if principal.sees((flight := _flight(watch, held))["namespace"])
    ]
    flights.sort(key=lambda flight: flight["acquired_at"] or 0.0)
    return {
        "version": VERSION,
        "replica": context.replica,
        "uptime_seconds": round(time.time() - context.started_at, 3),
        "draining": context.draining.is_set(),
        "store": {"url": context.backend.url, "leases": context.leases_known, "reachable": reachable},
        "requests": {
            **context.metrics.totals(),
            **{name: sum(value.get(name, 0) for value in namespaces.values()) for name in ("hits", "misses")},
        },
        "index": {name: found["totals"].get(name) for name in ("complete", "scanned_at")},
        "totals": found["totals"] if principal.namespaces is None else {},
        "namespaces": namespaces,
        "in_flight": flights,
        "in_flight_total": len(flights),
        "waiters": sum(flight["waiters"] for flight in flights),
        "recent_failures": [it for it in found["recent_failures"] if principal.sees(it["namespace"])],
        "recent_evictions": [it for it in found["recent_evictions"] if principal.sees(it["namespace"])],
        "history": found["history"] if principal.namespaces is None else [],
    }


def _flight(watch: Watch, held: Held) -> dict[str, Any]:
    record = held.record
    return {
        "namespace": watch.name.partition("/")[0],
        "key": watch.key,
        "label": record.label if record else "",
        "owner": str(record.owner) if record else None,
        "phase": record.phase if record else None,
        "acquired_at": record.acquired_at if record else None,
        "age_seconds": round(max(0.0, time.time() - record.acquired_at), 3) if record else None,
        "silent_seconds": round(held.unchanged_for, 3),
        "lease_seconds": record.lease_seconds if record else None,
        "waiters": watch.waiters,
    }


ROUTES = [
    Route(
        "GET",
        "/v1/stats",
        stats,
        Scope.READ,
        "What the service holds and did",
        {200: "Statistics", 304: "They are as If-None-Match says"},
        "operations",
        parameters=(
            Query("max_age", _SECONDS, "Take an answer that is so many seconds old, made for others who look"),
            Query("since", _SECONDS, "Only the history from this time on, in seconds since 1970"),
            Query("flights", {"type": "integer", "minimum": 0}, "Only so many of the leases that are held, the oldest"),
            Query("If-None-Match", {"type": "string"}, "The ETag of the statistics at hand", header=True),
        ),
    ),
    Route(
        "GET",
        "/v1/namespaces/{ns}/stats",
        namespace_stats,
        Scope.READ,
        "The same for one namespace",
        {200: "Statistics"},
        "operations",
    ),
    Route(
        "POST",
        "/v1/gc",
        collect,
        Scope.ADMIN,
        "Remove what policy says may go",
        {200: "What was removed"},
        "operations",
        reads="application/json",
        reads_schema={"type": "object", "properties": {"dry_run": {"type": "boolean"}}},
        audit="gc",
    ),
    Route(
        "GET",
        "/metrics",
        metrics,
        Scope.NONE,
        "Metrics for Prometheus",
        {200: "Metrics"},
        "operations",
        gives="text/plain",
    ),
    Route("GET", "/healthz", healthz, Scope.NONE, "Whether the process lives", {200: "It does"}, "operations"),
    Route(
        "GET",
        "/readyz",
        readyz,
        Scope.NONE,
        "Whether to send requests here",
        {200: "Yes"},
        "operations",
        problems=("draining", "store-unavailable"),
    ),
    Route("GET", "/openapi.json", openapi, Scope.NONE, "This document", {200: "OpenAPI 3.1"}, "operations"),
]
