"""The plain form that other build caches speak: bazel's HTTP cache (ccache too), and enough of WebDAV for sccache."""

from __future__ import annotations

import asyncio
import hashlib
from email.utils import formatdate
from xml.sax.saxutils import escape

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from cache_server.backends import Content, Found
from cache_server.blobs import BlobUpload, check
from cache_server.errors import DigestError
from cache_server.manifest import Blob
from cache_server.plain import PlainObjects
from cache_server.service.admission import Promise
from cache_server.service.context import Context
from cache_server.service.errors import ProblemError, bad_request, not_found
from cache_server.service.gate import Scope
from cache_server.service.ranges import wanted
from cache_server.service.route import OCTETS, Query, Route
from cache_server.service.routes.blobs import WHOLE
from cache_server.service.streams import ContentAnswer, blocks, content_length, read_all

_NAMESPACE = "default"  # of paths that name none


async def get_plain(context: Context, request: Request) -> Response:
    """One object, whole or a range of it; HEAD its length."""
    objects, path = _place(context, request, Scope.READ)
    if request.method == "HEAD":
        found = await context.call(objects.find, path)
        if found is None:
            raise _missing()
        return Response(headers={**_headers(found), "Content-Length": str(found.size)})
    opened = await context.call(_read_or_open, objects, path)
    if opened is None:
        raise _missing()
    context.index.used_plain(_namespace(request), path)
    data, content = opened
    size = len(data) if content is None else content.size
    try:
        span = wanted(request.headers.get("range"), request.headers.get("if-range"), size=size, etag="")
    except ValueError as error:
        if content is not None:
            await context.call(content.close)
        raise ProblemError("range-not-satisfiable", str(error), headers={"Content-Range": f"bytes */{size}"}) from None
    headers = {"Content-Type": OCTETS, "Accept-Ranges": "bytes"}
    start, stop, status = (0, size, 200) if span is None else (span.start, span.stop, 206)
    if span is not None:
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
    if content is None:
        return Response(data[start:stop], status, headers)
    return ContentAnswer(context.call, content, start, stop, status=status, headers=headers)


async def put_plain(context: Context, request: Request) -> Response:
    """Stores one object, in place of whatever is there; below /cas/ only what has the SHA-256 in its name."""
    objects, path = _place(context, request, Scope.WRITE)
    request.scope["neuron_env"].note = {"path": path}
    size = content_length(request.headers, context.settings.blob_limit)
    sha256 = request.path_params.get("sha256")
    try:
        async with context.space.reserve(_namespace(request), size, path) as room:
            if size <= WHOLE:
                data = await read_all(request, size)
                await context.call(_store_whole, objects, path, data, sha256, room)
            else:
                await _store_stream(context, objects, path, size, sha256, request)
    except DigestError as error:
        raise ProblemError("digest-mismatch", error.message, hint=error.hint) from None
    except ClientDisconnect:
        raise bad_request("the sender went away in the middle of the object") from None
    return Response(status_code=201)


async def describe(context: Context, request: Request) -> Response:
    """What WebDAV's PROPFIND says of one path: a collection is there as soon as somebody asks for it."""
    rest = request.path_params["rest"]
    if rest.endswith("/") or not rest:
        _place(context, request, Scope.READ, rest.rstrip("/") or "root")
        kind = "<D:resourcetype><D:collection/></D:resourcetype>"
        modified = 0.0
    else:
        objects, path = _place(context, request, Scope.READ)
        found = await context.call(objects.find, path)
        if found is None:
            raise _missing()
        kind = f"<D:resourcetype/><D:getcontentlength>{found.size}</D:getcontentlength>"
        modified = found.modified_at
    document = (
        '<?xml version="1.0" encoding="utf-8"?><D:multistatus xmlns:D="DAV:"><D:response>'
        f"<D:href>{escape(request.url.path)}</D:href><D:propstat><D:prop>{kind}"
        f"<D:getlastmodified>{formatdate(modified, usegmt=True)}</D:getlastmodified></D:prop>"
        "<D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response></D:multistatus>"
    )
    return Response(document, 207, media_type="application/xml")


async def make_collection(context: Context, request: Request) -> Response:
    """WebDAV's MKCOL: collections need not be made."""
    _place(context, request, Scope.WRITE, request.path_params["rest"].rstrip("/") or "root")
    return Response(status_code=201)


def _namespace(request: Request) -> str:
    namespace: str = request.path_params.get("ns", _NAMESPACE)
    return namespace


def _place(context: Context, request: Request, scope: Scope, rest: str | None = None) -> tuple[PlainObjects, str]:
    """The objects a path is about, and the name in the store. Raises ProblemError."""
    namespace, parameters = _namespace(request), request.path_params
    principal = request.scope["neuron_env"].principal
    if not principal.may(scope, namespace):
        # Where the path names no namespace, the router has only asked whether there is any.
        raise ProblemError("forbidden", f"{principal.name} may not {scope.name.lower()} in the namespace {namespace}")
    objects = PlainObjects(context.backend, namespace)
    try:
        if "key" in parameters:
            return objects, objects.result_path(parameters["key"])
        if "sha256" in parameters:
            return objects, objects.content_path(parameters["sha256"])
        return objects, objects.dav_path(parameters["rest"] if rest is None else rest)
    except ValueError as error:
        raise bad_request(str(error)) from None


def _missing() -> ProblemError:
    return not_found("there is no such object")


def _headers(found: Found) -> dict[str, str]:
    return {
        "Content-Type": OCTETS,
        "Accept-Ranges": "bytes",
        "Last-Modified": formatdate(found.modified_at, usegmt=True),
    }


def _read_or_open(objects: PlainObjects, path: str) -> tuple[bytes, Content | None] | None:
    content = objects.open(path)
    if content is None or content.size > content.piece:
        return None if content is None else (b"", content)
    try:
        return content.read(0, content.size), None
    finally:
        content.close()


def _store_whole(objects: PlainObjects, path: str, data: bytes | memoryview, sha256: str | None, room: Promise) -> None:
    if sha256 is not None:
        check(Blob(sha256, len(data)), len(data), hashlib.sha256(data).hexdigest())
    objects.write(path, data)
    room.settle(created=False)


async def _store_stream(
    context: Context, objects: PlainObjects, path: str, size: int, sha256: str | None, request: Request
) -> None:
    upload = await context.call(objects.receive, path, size, sha256=sha256)
    try:
        async for block in blocks(request):
            await context.call(upload.append, block)
        if not isinstance(upload, BlobUpload) and upload.offset != size:
            raise DigestError(f"{upload.offset} bytes came instead of {size}")
        await context.call(upload.finish)
    finally:
        await asyncio.shield(context.call(upload.abort))


_RANGE = (Query("Range", {"type": "string"}, "One range of bytes", header=True),)


def _object_routes(
    path: str, what: str, problems: tuple[str, ...] = (), *, audit: str | None = "plain-put"
) -> list[Route]:
    return [
        Route(
            "GET",
            path,
            get_plain,
            Scope.READ,
            f"Get {what}",
            {200: "All of it", 206: "A part"},
            "plain",
            problems=("not-found", "range-not-satisfiable"),
            parameters=_RANGE,
            gives=OCTETS,
        ),
        Route(
            "PUT",
            path,
            put_plain,
            Scope.WRITE,
            f"Store {what}",
            {201: "It is there"},
            "plain",
            problems=("length-required", "too-large", "no-space", "quota", *problems),
            reads=OCTETS,
            uploads=True,
            audit=audit,
        ),
    ]


def _dav_routes(path: str) -> list[Route]:
    return [
        *_object_routes(path, "an object by a WebDAV path"),
        Route("PROPFIND", path, describe, Scope.READ, "Describe a path", {207: "Its properties"}, "plain"),
        Route("MKCOL", path, make_collection, Scope.WRITE, "Make a collection", {201: "It is there"}, "plain"),
    ]


ROUTES = [
    route
    for prefix in ("", "/{ns}")
    for route in (
        *_object_routes(prefix + "/ac/{key}", "a result of another build cache"),
        *_object_routes(prefix + "/cas/{sha256}", "content of another build cache", ("digest-mismatch",), audit=None),
        *_dav_routes(prefix + "/dav/{rest:path}"),
    )
]
