"""The page at `/`: static files, the same for everybody. What it shows comes from `/v1/stats`."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

from cache_server.service.conditions import matches
from cache_server.service.context import Context
from cache_server.service.errors import not_found
from cache_server.service.gate import Scope
from cache_server.service.route import Route

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HEADERS = {
    # Nothing from elsewhere, nothing inline, and no text can ever become markup.
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "object-src 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class Static:
    """One file of the page."""

    data: bytes
    media_type: str
    etag: str


async def page(context: Context, request: Request) -> Response:
    return _answer(request, "index.html")


async def part(context: Context, request: Request) -> Response:
    return _answer(request, request.path_params["file"])


def _answer(request: Request, name: str) -> Response:
    found = _files().get(name)
    if found is None:
        raise not_found("the dashboard has no such file")
    headers = {**_HEADERS, "ETag": found.etag}
    if matches(request.headers.get("if-none-match"), found.etag):
        return Response(status_code=304, headers=headers)
    return Response(found.data, headers=headers, media_type=found.media_type)


@functools.cache
def _files() -> Mapping[str, Static]:
    found = {}
    for file in (files("cache_server.service") / "dashboard").iterdir():
        media_type = _TYPES.get("." + file.name.rpartition(".")[2])
        if media_type is not None:
            data = file.read_bytes()
            found[file.name] = Static(data, media_type, f'"{hashlib.sha256(data).hexdigest()[:32]}"')
    return found


ROUTES = [
    Route("GET", "/", page, Scope.NONE, "The dashboard, for people", {200: "The page"}, "dashboard", gives="text/html"),
    Route(
        "GET",
        "/dashboard/{file}",
        part,
        Scope.NONE,
        "What the page is made of",
        {200: "A style sheet, a script or an image"},
        "dashboard",
        problems=("not-found",),
        gives="*/*",
    ),
]
