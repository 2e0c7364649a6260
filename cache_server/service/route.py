"""The routes as data: what dispatches requests also writes the OpenAPI document."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from cache_server.service.gate import Scope

if TYPE_CHECKING:
    from cache_server.service.context import Context

Handler = Callable[["Context", Request], Awaitable[Response]]
JSON = "application/json"
OCTETS = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Query:
    """A parameter in the query string or, with `header`, a header. `schema` is its JSON schema."""

    name: str
    schema: Mapping[str, Any]
    summary: str
    header: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path.

    `scope` is what the sender needs in the namespace of the path, or in some namespace if the path has none; NONE is
    open to everybody. `answers` says what a status other than a problem means; `problems` are slugs of errors.py beyond
    those that every route of its kind can give. `reads` and `gives` are media types. HEAD comes with GET. `audit` is
    what the audit log calls it; None for what changes nothing that lasts. `uploads`: its body may be large. `paced` is
    False for what the holder of a lease has to do, where a refusal would cost a compile.
    """

    method: str
    path: str
    handler: Handler
    scope: Scope
    summary: str
    answers: Mapping[int, str]
    tag: str
    problems: Sequence[str] = ()
    parameters: Sequence[Query] = ()
    reads: str | None = None
    reads_schema: Mapping[str, Any] | None = None
    gives: str = JSON
    gives_schema: Mapping[str, Any] = field(default_factory=dict)
    audit: str | None = None
    uploads: bool = False
    paced: bool = True
