"""The ASGI application: routes behind one front that knows ids, logs, limits and errors."""

from __future__ import annotations

import contextlib

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as Pattern
from starlette.routing import Router
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Asgi

from cache_server.errors import CacheError
from cache_server.names import check_digest, check_namespace
from cache_server.service.context import Context
from cache_server.service.errors import ProblemError, bad_request, not_found, unauthorized
from cache_server.service.front import Front
from cache_server.service.gate import Principal, Scope
from cache_server.service.route import Route
from cache_server.service.routes import all_routes


def build_app(context: Context) -> ASGIApp:
    """The service as an ASGI application. `context` has to be started by whoever runs it."""
    by_path: dict[str, dict[str, Route]] = {}
    for route in all_routes():
        by_path.setdefault(route.path, {})[route.method] = route
    patterns = [Pattern(path, Dispatch(context, methods)) for path, methods in by_path.items()]
    return Front(context, Router(patterns, default=_nothing_there, redirect_slashes=False))


class Dispatch:
    """One path: chooses by method, admits the sender, checks the path's parameters, and calls the handler."""

    def __init__(self, context: Context, methods: dict[str, Route]) -> None:
        self._context = context
        self._methods = dict(methods)
        if "GET" in methods:
            self._methods.setdefault("HEAD", methods["GET"])
        self._allow = ", ".join(sorted(self._methods))

    async def __call__(self, scope: Asgi, receive: Receive, send: Send) -> None:
        route = self._methods.get(scope["method"])
        if route is None:
            raise ProblemError(
                "method-not-allowed",
                f"{scope['method']} is not among the methods of this path: {self._allow}",
                headers={"Allow": self._allow},
            )
        exchange = scope["neuron_env"]
        exchange.path, exchange.audit = route.path, route.audit
        exchange.key = scope.get("path_params", {}).get("key")
        request = Request(scope, receive, send)
        principal = await self._authorize(route, request)
        pace, peer = self._context.pace, request.client.host if request.client else "unknown"
        if principal is not None and route.paced:
            pace.admit(principal, peer)
        with contextlib.nullcontext() if principal is None or not route.uploads else pace.uploading(principal, peer):
            response: Response = await route.handler(self._context, request)
        await response(scope, receive, send)

    async def _authorize(self, route: Route, request: Request) -> Principal | None:
        """The sender; None for what is open to everybody. Raises ProblemError for whoever may not."""
        namespace = _checked_parameters(request)
        seen = request.scope["neuron_env"]
        seen.namespace = namespace or ""
        if route.scope is Scope.NONE:
            return None
        principal = await self._context.gate.admit(request)
        seen.principal = principal
        if principal.may(route.scope, namespace):
            return principal
        if principal.scope is Scope.NONE:
            raise unauthorized(
                "this service answers only those whom it knows",
                hint="send a token; `neuron-env cache token create` makes one",
            )
        scope, where = route.scope.name.lower(), f" in the namespace {namespace}" if namespace else ""
        option = f" --namespace {namespace}" if namespace else ""
        raise ProblemError(
            "forbidden",
            f"{principal.name} may not {scope}{where}: the scope {scope} is missing",
            hint=f"use a token that has it: `neuron-env cache token create NAME --scope {scope}{option}` makes one",
        )


def _checked_parameters(request: Request) -> str | None:
    """The namespace of the path, if it has one. Raises ProblemError for names that cannot be."""
    parameters = request.path_params
    try:
        for name in ("key", "sha256"):
            if name in parameters:
                check_digest(parameters[name])
        return check_namespace(parameters["ns"]) if "ns" in parameters else None
    except ValueError as error:
        raise bad_request(str(error)) from None
    except CacheError as error:
        raise bad_request(error.message, hint=error.hint) from None


async def _nothing_there(scope: Asgi, receive: Receive, send: Send) -> None:
    raise not_found(f"there is nothing at {scope['path'][:200]}")
