"""What every request passes: an id, one line in the log, metrics, and an answer whatever goes wrong."""

from __future__ import annotations

import contextlib
import logging
import random
import re
import time
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cache_server.service.context import Context
from cache_server.service.errors import MEDIA_TYPE, ProblemError, problem_of
from cache_server.service.gate import Principal

log = logging.getLogger("neuron_env.cache.server")
access = logging.getLogger("neuron_env.cache.access")

_PLAUSIBLE_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


@dataclass(slots=True)
class Exchange:
    """One request and its answer, as far as they are known; `scope["neuron_env"]`."""

    request_id: str
    method: str
    begun: float
    path: str = "(none)"  # the route's template: what was asked for may be anything
    namespace: str = ""
    principal: Principal | None = None
    status: int = 0
    sent: int = 0
    problem: str = ""  # the slug of the problem it was answered with
    audit: str | None = None  # what the audit log calls it, if it belongs there
    key: str | None = None
    digest: str | None = None  # of the NEFF that it is about
    note: dict[str, Any] = field(default_factory=dict)  # more for the audit log


class Front:
    """The outermost ASGI application."""

    def __init__(self, context: Context, inner: ASGIApp) -> None:
        self._context = context
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        exchange = Exchange(_request_id(scope), scope["method"], time.monotonic())
        scope["neuron_env"] = exchange
        request_id = exchange.request_id.encode()

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                message.setdefault("headers", [])
                message["headers"] = [*message["headers"], (b"x-request-id", request_id)]
            elif message["type"] == "http.response.body":
                exchange.sent += len(message.get("body", b""))
            await send(message)

        tracing = self._context.tracing
        span = contextlib.nullcontext() if tracing is None else tracing.request(exchange, scope["headers"])
        try:
            with self._context.metrics.in_flight.track_inprogress(), span:
                try:
                    await self._inner(scope, receive, counted)
                except Exception as error:  # noqa: BLE001  the last handler there is
                    await self._failed(error, exchange, counted)
        finally:
            tell(self._context, exchange)

    async def _failed(self, error: Exception, exchange: Exchange, send: Send) -> None:
        problem = problem_of(error)
        if problem is None:
            log.error("request %s failed", exchange.request_id, exc_info=error)
            problem = ProblemError(
                "internal",
                "something went wrong that nobody foresaw",
                hint=f"look for {exchange.request_id} in the service's log",
            )
        elif problem.status == 503 and problem.slug != "draining":
            log.warning("request %s: %s", exchange.request_id, problem)
        exchange.problem = problem.slug
        if exchange.status:
            # The answer has begun: ending it short is the only sign there is left to give.
            raise error
        await send_problem(problem, exchange.request_id, send)


def tell(context: Context, exchange: Exchange) -> None:
    """Counts and logs a request that has been answered."""
    seconds = time.monotonic() - exchange.begun
    # What strangers try stays out: they could fill the audit log at will.
    if exchange.audit is not None and exchange.principal is not None and exchange.problem != "unauthorized":
        context.audit.record(
            exchange.audit,
            principal=exchange.principal.name,
            result=exchange.problem or "ok",
            request_id=exchange.request_id,
            namespace=exchange.namespace or None,
            key=exchange.key,
            digest=exchange.digest,
            **exchange.note,
        )
    context.metrics.observe(exchange.method, exchange.path, exchange.status, seconds, exchange.sent)
    if not access.isEnabledFor(logging.INFO):
        return
    access.info(
        "%s %s %d",
        exchange.method,
        exchange.path,
        exchange.status,
        extra={
            "fields": {
                "request_id": exchange.request_id,
                "method": exchange.method,
                "path": exchange.path,
                "status": exchange.status,
                "bytes": exchange.sent,
                "seconds": round(seconds, 6),
                "principal": exchange.principal.name if exchange.principal else None,
                "namespace": exchange.namespace or None,
            }
        },
    )


async def send_problem(problem: ProblemError, request_id: str, send: Send) -> None:
    """Answers with a problem document."""
    body = problem.document(request_id)
    headers = {"Content-Type": MEDIA_TYPE, "Content-Length": str(len(body)), **problem.headers}
    await send(
        {
            "type": "http.response.start",
            "status": problem.status,
            "headers": [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in headers.items()],
        }
    )
    await send({"type": "http.response.body", "body": body})


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _PLAUSIBLE_ID.fullmatch(value):
            return str(value, "ascii")
    # The system's own random numbers let another thread run, and this one then waits for it.
    return f"{random.getrandbits(64):016x}"
