"""Reading and writing the small JSON documents of requests and answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from cache_server.fields import Fields, encode_object, parse_object
from cache_server.service.errors import ProblemError, bad_request


async def read_object(request: Request, limit: int) -> Fields:
    """The JSON object of a request's body. Raises ProblemError for anything else, and beyond `limit` bytes."""
    body = await read_bytes(request, limit)
    try:
        return parse_object(body, limit=limit)
    except ValueError as error:
        raise bad_request(f"the body is not a JSON object: {error}") from None


async def read_bytes(request: Request, limit: int) -> bytes:
    """A request's body. Raises ProblemError beyond `limit` bytes, without reading the rest."""
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and int(length) > limit:
        raise ProblemError("too-large", f"the body has {length[:20]} bytes, and at most {limit} are taken")
    parts, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise ProblemError("too-large", f"the body has more than {limit} bytes")
        parts.append(chunk)
    return b"".join(parts)


def json_answer(value: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer with one JSON object."""
    return Response(
        encode_object(value),
        status,
        {"Cache-Control": "no-store", **(headers or {})},
        media_type="application/json",
    )
