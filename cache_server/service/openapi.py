"""The OpenAPI document, made from the route table."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from cache_server.service.errors import MEDIA_TYPE, PROBLEMS
from cache_server.service.gate import Scope
from cache_server.service.route import Route
from neuron_runtime.version import VERSION

_HEX64 = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_PARAMETERS: dict[str, dict[str, Any]] = {
    "ns": {"description": "Namespace", "schema": {"type": "string", "pattern": "^[a-z0-9][a-z0-9._-]{0,63}$"}},
    "key": {"description": "Key of an entry", "schema": _HEX64},
    "sha256": {"description": "Digest of a blob", "schema": _HEX64},
    "job": {"description": "Name of a job", "schema": {"type": "string"}},
    "part": {"description": "Name of one process's record", "schema": {"type": "string"}},
    "id": {"description": "Name of an upload", "schema": {"type": "string"}},
    "rest": {"description": "Path below the collection", "schema": {"type": "string"}},
}
# OpenAPI has no words for others, such as WebDAV's.
_METHODS = frozenset({"GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS"})
_PROBLEM = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "request_id"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "hint": {"type": ["string", "null"]},
        "request_id": {"type": "string"},
    },
}


def openapi_document(routes: Iterable[Route]) -> dict[str, Any]:
    """OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if route.method not in _METHODS:
            continue
        # A converter such as {rest:path} is Starlette's matter.
        path = re.sub(r"\{(\w+):\w+\}", r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, path)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "neuron-env cache",
            "version": VERSION,
            "description": "The NEFF cache of a fleet: entries, leases and blobs.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": {"Problem": _PROBLEM},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "basic": {"type": "http", "scheme": "basic", "description": "The token as the password"},
            },
        },
    }


def _operation(route: Route, path: str) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _name(route, path),
        "summary": route.summary,
        "tags": [route.tag],
        "parameters": [
            *({"name": name, "in": "path", "required": True, **_parameter(name)} for name in _names(path)),
            *(
                {
                    "name": query.name,
                    "in": "header" if query.header else "query",
                    "description": query.summary,
                    "schema": dict(query.schema),
                }
                for query in route.parameters
            ),
        ],
        "responses": _responses(route),
        "security": [] if route.scope is Scope.NONE else [{"token": []}, {"basic": []}],
    }
    if route.scope is not Scope.NONE:
        operation["description"] = f"Needs the scope {route.scope.name.lower()}."
    if route.reads is not None:
        schema = dict(route.reads_schema or {})
        operation["requestBody"] = {"required": True, "content": {route.reads: {"schema": schema}}}
    return operation


def _responses(route: Route) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, what in route.answers.items():
        responses[str(status)] = {"description": what}
        if 200 <= status < 300 and status != 204:
            responses[str(status)]["content"] = {route.gives: {"schema": dict(route.gives_schema)}}
    slugs: dict[int, list[str]] = {}
    for slug in (*_common_problems(route), *route.problems):
        slugs.setdefault(PROBLEMS[slug][0], []).append(slug)
    for status, named in sorted(slugs.items()):
        responses[str(status)] = {
            "description": "; ".join(f"{PROBLEMS[slug][1]} ({slug})" for slug in dict.fromkeys(named)),
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
    return responses


def _common_problems(route: Route) -> tuple[str, ...]:
    if route.scope is Scope.NONE:
        return ()
    return ("bad-request", "unauthorized", "forbidden", *(["busy"] if route.paced else []), "store-unavailable")


def _names(path: str) -> list[str]:
    return re.findall(r"\{(\w+)\}", path)


def _parameter(name: str) -> dict[str, Any]:
    return _PARAMETERS.get(name, {"schema": {"type": "string"}})


def _name(route: Route, path: str) -> str:
    words = re.findall(r"[A-Za-z0-9]+", path)
    return "_".join([route.method.lower(), *words])
