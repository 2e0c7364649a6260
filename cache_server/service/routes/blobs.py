"""Blobs: content by its SHA-256, of any size."""

from __future__ import annotations

import asyncio

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from cache_server.backends import Content
from cache_server.errors import DigestError
from cache_server.manifest import Blob
from cache_server.service.admission import Promise
from cache_server.service.body import json_answer, read_object
from cache_server.service.context import Context
from cache_server.service.errors import ProblemError, bad_request, not_found
from cache_server.service.gate import Scope
from cache_server.service.ranges import Span, has_already, wanted
from cache_server.service.route import JSON, OCTETS, Query, Route
from cache_server.service.streams import ContentAnswer, blocks, content_length, read_all
from cache_server.service.uploads import Session
from cache_server.store import Store, blob_path

WHOLE = 4 << 20  # bytes up to which a body is stored by one call: fewer hops between threads
_REDIRECT_FROM = 1 << 20  # bytes; below, a second connection costs more than the bytes
_REDIRECT_SECONDS = 900
_IMMUTABLE = "public, max-age=31536000, immutable"


async def get_blob(context: Context, request: Request) -> Response:
    """The blob or a part of it; HEAD its length."""
    sha256 = request.path_params["sha256"]
    etag = f'"{sha256}"'
    headers = {"ETag": etag, "Accept-Ranges": "bytes", "Cache-Control": _IMMUTABLE, "Content-Type": OCTETS}
    store = context.store(request.path_params["ns"])
    if request.method == "HEAD" or has_already(request.headers.get("if-none-match"), etag):
        found = await context.call(store.find_blob, sha256)
        if found is None:
            raise _missing(sha256)
        if has_already(request.headers.get("if-none-match"), etag):
            return Response(status_code=304, headers=headers)
        return Response(headers={**headers, "Content-Length": str(found.size)})

    data = context.hot.get(sha256)
    if data is None:
        if context.settings.redirect and (url := await context.call(_elsewhere, store, sha256)):
            return Response(status_code=307, headers={"Location": url, "Cache-Control": "no-store"})
        opened = await context.call(_open, context, store, sha256)
        if opened is None:
            raise _missing(sha256)
        if not isinstance(opened, bytes):
            return await _streamed(context, request, store, sha256, opened, headers)
        data = opened
    span = await _span(request, len(data), etag)
    context.express.admit(request)
    if span is None:
        return Response(data, headers=headers)
    headers["Content-Range"] = f"bytes {span.start}-{span.stop - 1}/{len(data)}"
    return Response(data[span.start : span.stop], 206, headers)


async def put_blob(context: Context, request: Request) -> Response:
    """Stores a blob while its digest is checked. One that is there is written anew: it may be damaged."""
    namespace, sha256 = request.path_params["ns"], request.path_params["sha256"]
    blob = Blob(sha256, content_length(request.headers, context.settings.blob_limit))
    store = context.store(namespace)
    try:
        async with context.space.reserve(namespace, blob.size, blob_path(sha256)) as room:
            if blob.size <= WHOLE:
                data = await read_all(request, blob.size)
                was_there = await context.call(_store_whole, context, store, blob, data, room)
            else:
                was_there = await _store_stream(context, store, blob, request, room)
    except DigestError as error:
        raise ProblemError("digest-mismatch", error.message, hint=error.hint) from None
    except ClientDisconnect:
        raise bad_request("the sender went away in the middle of the blob") from None
    return _stored(request, sha256, created=not was_there)


async def begin_upload(context: Context, request: Request) -> Response:
    """Begins an upload that may take several connections, unless the blob is there."""
    namespace, sha256 = request.path_params["ns"], request.path_params["sha256"]
    fields = await read_object(request, context.settings.body_limit)
    try:
        size = fields.integer("size", low=0, high=1 << 46)
    except ValueError as error:
        raise bad_request(str(error)) from None
    if size > context.settings.blob_limit:
        raise ProblemError(
            "too-large", f"{size} bytes are announced, and at most {context.settings.blob_limit} are taken"
        )
    blob = Blob(sha256, size)
    # `replace` is for a sender that has found the blob to be damaged.
    if not fields.raw().get("replace") and await context.call(context.store(namespace).renew_blob, blob):
        return json_answer({"offset": size, "complete": True})
    session = await context.uploads.begin(namespace, blob)
    location = f"{request.url.path.partition('/blobs/')[0]}/uploads/{session.id}"
    return json_answer(
        {"id": session.id, "offset": 0, "complete": False}, 201, {"Location": location, "Upload-Offset": "0"}
    )


async def upload_offset(context: Context, request: Request) -> Response:
    """How much has arrived. Who asks has the turn: a request that still seems to be under way loses it."""
    session = await context.uploads.find(request.path_params["ns"], request.path_params["id"])
    turn = await session.take_turn()
    return Response(headers={**_progress(session, turn.offset), "Cache-Control": "no-store"})


async def continue_upload(context: Context, request: Request) -> Response:
    """Appends a body. What has come of it stays if the connection breaks."""
    session = await context.uploads.find(request.path_params["ns"], request.path_params["id"])
    turn = await session.take_turn()
    given = request.headers.get("upload-offset", "")
    if not (given.isascii() and given.isdigit()):
        raise bad_request("the request has no Upload-Offset", hint="ask for it with HEAD")
    if given.lstrip("0") != str(turn.offset).lstrip("0"):
        raise ProblemError(
            "wrong-offset",
            f"the upload goes on at {turn.offset}, not at {given[:20]}",
            headers=_progress(session, turn.offset),
        )
    try:
        async for block in blocks(request):
            await turn.append(block)
        if not session.upload.complete:
            return Response(status_code=204, headers=_progress(session, turn.offset))
        await context.uploads.finish(session)
    except DigestError as error:
        await context.uploads.abort(session)
        raise ProblemError("digest-mismatch", error.message, hint=error.hint) from None
    except ClientDisconnect:
        raise bad_request("the sender went away; what has come is kept") from None
    answer = _stored(request, session.upload.blob.sha256, created=True)
    answer.headers["Upload-Offset"] = str(session.upload.blob.size)
    return answer


async def abort_upload(context: Context, request: Request) -> Response:
    """Throws an upload away and gives its room back."""
    session = await context.uploads.find(request.path_params["ns"], request.path_params["id"])
    await context.uploads.abort(session)
    return Response(status_code=204)


def _missing(sha256: str) -> ProblemError:
    return not_found(f"there is no blob {sha256}")


def _stored(request: Request, sha256: str, *, created: bool) -> Response:
    return Response(
        status_code=201 if created else 200,
        headers={
            "ETag": f'"{sha256}"',
            "Location": f"{_namespace_path(request)}/blobs/{sha256}",
            "Content-Length": "0",
        },
    )


def _namespace_path(request: Request) -> str:
    return f"/v1/namespaces/{request.path_params['ns']}"


def _progress(session: Session, offset: int) -> dict[str, str]:
    return {"Upload-Offset": str(offset), "Upload-Length": str(session.upload.blob.size)}


async def _span(request: Request, size: int, etag: str) -> Span | None:
    try:
        return wanted(request.headers.get("range"), request.headers.get("if-range"), size=size, etag=etag)
    except ValueError as error:
        raise ProblemError(
            "range-not-satisfiable", str(error), headers={"Content-Range": f"bytes */{size}", "Accept-Ranges": "bytes"}
        ) from None


async def _streamed(
    context: Context, request: Request, store: Store, sha256: str, content: Content, headers: dict[str, str]
) -> Response:
    try:
        span = await _span(request, content.size, headers["ETag"])
    except ProblemError:
        await context.call(content.close)
        raise
    if span is not None:
        headers["Content-Range"] = f"bytes {span.start}-{span.stop - 1}/{content.size}"
        return ContentAnswer(context.call, content, span.start, span.stop, status=206, headers=headers)
    known = context.hot.was_whole(sha256)

    def done(whole: bool) -> None:
        if whole:
            context.hot.remember_whole(sha256)
        else:
            store.set_aside(sha256, "does not have the SHA-256 that names it")

    return ContentAnswer(
        context.call,
        content,
        0,
        content.size,
        status=200,
        headers=headers,
        sha256=None if known else sha256,
        done=done,
    )


def _elsewhere(store: Store, sha256: str) -> str | None:
    """Where S3 itself gives the blob, if it is large; None where the service has to."""
    path = blob_path(sha256)
    url = store.backend.presigned(path, _REDIRECT_SECONDS)
    if url is None:
        return None
    found = store.find_blob(sha256)
    return url if found is not None and found.size >= _REDIRECT_FROM else None


def _open(context: Context, store: Store, sha256: str) -> bytes | Content | None:
    """A small blob verified and whole, a large one open; None if it is missing or damaged."""
    content = store.open_blob(sha256)
    if content is None or content.size > context.hot.largest:
        return content
    size = content.size
    content.close()
    data = store.read_blob(Blob(sha256, size))
    if data is not None:
        context.hot.put(sha256, data)
    return data


def _store_whole(context: Context, store: Store, blob: Blob, data: bytes | memoryview, room: Promise) -> bool:
    # All in one call: a hop between threads costs more than what it hops for.
    was_there = store.find_blob(blob.sha256) is not None
    store.put_blob(data, blob)
    room.settle(created=not was_there)
    if isinstance(data, bytes):  # small: what is larger is kept once somebody asks for it
        context.hot.put(blob.sha256, data)
    return was_there


async def _store_stream(context: Context, store: Store, blob: Blob, request: Request, room: Promise) -> bool:
    was_there = await context.call(store.find_blob, blob.sha256) is not None

    def finish() -> None:
        upload.finish()
        room.settle(created=not was_there)

    upload = await context.call(store.receive_blob, blob)
    try:
        async for block in blocks(request):
            await context.call(upload.append, block)
        await context.call(finish)
    finally:
        # Even if this request is being cancelled: what nobody finishes must not stay.
        await asyncio.shield(context.call(upload.abort))
    return was_there


BLOB_PATH = "/v1/namespaces/{ns}/blobs/{sha256}"
_UPLOAD = "/v1/namespaces/{ns}/uploads/{id}"
_RANGE = (
    Query("Range", {"type": "string"}, "One range of bytes", header=True),
    Query("If-Range", {"type": "string"}, "The ETag for which the range holds", header=True),
    Query("If-None-Match", {"type": "string"}, "The ETag that the sender has", header=True),
)
_OFFSET = Query("Upload-Offset", {"type": "integer", "minimum": 0}, "Bytes that arrived before this body", header=True)

ROUTES = [
    Route(
        "GET",
        BLOB_PATH,
        get_blob,
        Scope.READ,
        "Get a blob or a part of it",
        {200: "All of it", 206: "A part", 304: "The sender has it", 307: "S3 gives it: follow without credentials"},
        "blobs",
        problems=("not-found", "range-not-satisfiable"),
        parameters=_RANGE,
        gives=OCTETS,
    ),
    Route(
        "PUT",
        BLOB_PATH,
        put_blob,
        Scope.WRITE,
        "Store a blob",
        {200: "It was there, and was written anew", 201: "It is there now"},
        "blobs",
        problems=("length-required", "too-large", "digest-mismatch", "no-space", "quota"),
        uploads=True,
        reads=OCTETS,
    ),
    Route(
        "POST",
        BLOB_PATH + "/uploads",
        begin_upload,
        Scope.WRITE,
        "Begin an upload that may take several connections",
        {200: "The blob is there: nothing to send", 201: "Send it to Location"},
        "blobs",
        problems=("too-large", "no-space", "quota"),
        reads=JSON,
        reads_schema={
            "type": "object",
            "required": ["size"],
            "properties": {"size": {"type": "integer", "minimum": 0}, "replace": {"type": "boolean"}},
        },
    ),
    Route(
        "GET",
        _UPLOAD,
        upload_offset,
        Scope.WRITE,
        "How much of an upload has arrived, in Upload-Offset",
        {200: "It is under way"},
        "blobs",
        problems=("not-found", "no-space", "quota"),
    ),
    Route(
        "PATCH",
        _UPLOAD,
        continue_upload,
        Scope.WRITE,
        "Send the next bytes of an upload",
        {201: "That was the last of it, and the blob is there", 204: "They have arrived"},
        "blobs",
        problems=("not-found", "wrong-offset", "digest-mismatch", "no-space", "quota"),
        parameters=(_OFFSET,),
        uploads=True,
        reads=OCTETS,
    ),
    Route(
        "DELETE",
        _UPLOAD,
        abort_upload,
        Scope.WRITE,
        "Throw an upload away",
        {204: "It is gone"},
        "blobs",
        problems=("not-found",),
    ),
]
