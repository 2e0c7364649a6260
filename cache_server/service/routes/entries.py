"""Entries: one manifest a key."""

from __future__ import annotations

import hashlib

from starlette.requests import Request
from starlette.responses import Response

from cache_server.administration.removal import remove_entry
from cache_server.administration.snapshot import Entry, read_record
from cache_server.backends import Found
from cache_server.manifest import MANIFEST_LIMIT, Manifest
from cache_server.names import is_digest
from cache_server.service.body import json_answer, read_object
from cache_server.service.catalogue import Query as ListingQuery
from cache_server.service.conditions import matches
from cache_server.service.context import Context
from cache_server.service.errors import ProblemError, bad_request, not_found
from cache_server.service.gate import Scope
from cache_server.service.publishing import list_entry, neff_digest, prepare, read_manifest
from cache_server.service.route import Query, Route
from cache_server.storage import Storage
from cache_server.store import Put, Store

_PATH = "/v1/namespaces/{ns}/entries/{key}"
_LOOKUP_LIMIT = 10_000  # keys a request
_PAGE_LIMIT = 1000  # entries a page
_SORTS = ("created", "used", "size", "saved")
_KINDS = ("neff", "failure")


async def get_entry(context: Context, request: Request) -> Response:
    namespace, key = request.path_params["ns"], request.path_params["key"]
    manifest = await context.call(context.store(namespace).read_manifest, key)
    used = request.query_params.get("use") != "0"
    if manifest is None:
        if used:
            context.miss(namespace, key)
        raise not_found(f"the namespace {namespace} has no entry {key}")
    data = manifest.encode()
    headers = {"ETag": _etag(data), "Cache-Control": "no-cache"}
    if request.method == "GET" and used:
        context.hit(namespace, manifest)
    if matches(request.headers.get("if-none-match"), headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(data, headers=headers, media_type="application/json")


async def put_entry(context: Context, request: Request) -> Response:
    namespace, key = request.path_params["ns"], request.path_params["key"]
    manifest = read_manifest(await read_object(request, MANIFEST_LIMIT), key)
    request.scope["neuron_env"].digest = neff_digest(manifest)
    put = await list_entry(context, namespace, await prepare(context, namespace, manifest))
    if put is Put.OTHER:
        raise ProblemError("conflict", f"another result of the same or a later epoch is there for {key}, and stays")
    return json_answer({"result": put.value}, 201 if put is Put.CREATED else 200)


async def delete_entry(context: Context, request: Request) -> Response:
    namespace, key = request.path_params["ns"], request.path_params["key"]
    wanted = request.headers.get("if-match")
    removed = await context.call(_remove, context, namespace, key, wanted)
    if not removed:
        raise ProblemError(
            "conflict", f"the entry {key} is pinned, or was just replaced", hint="unpin it, or try again"
        )
    context.index.removed(namespace, key)
    return Response(status_code=204)


async def lookup(context: Context, request: Request) -> Response:
    namespace = request.path_params["ns"]
    try:
        fields = await read_object(request, context.settings.body_limit)
        keys = fields.texts("keys", count=_LOOKUP_LIMIT, limit=64)
    except ValueError as error:
        raise bad_request(str(error)) from None
    if not all(map(is_digest, keys)):
        raise bad_request("keys holds something other than keys: 64 lower-case hexadecimal digits")
    found = await context.call(_read_all, context.store(namespace), dict.fromkeys(keys))
    for key, manifest in found.items() if fields.raw().get("use") is not False else ():
        if manifest is None:
            context.miss(namespace, key)
        else:
            context.hit(namespace, manifest)
    return json_answer({"entries": {key: manifest.to_json() for key, manifest in found.items() if manifest}})


async def list_entries(context: Context, request: Request) -> Response:
    wanted = request.query_params
    limit = wanted.get("limit", "100")
    if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:9]) <= _PAGE_LIMIT):
        raise bad_request(f"limit is not 1 to {_PAGE_LIMIT}")
    query = ListingQuery(
        limit=int(limit),
        cursor=wanted.get("cursor"),
        kind=_one_of("kind", wanted.get("kind"), _KINDS),
        label=wanted.get("label"),
        sort=_one_of("sort", wanted.get("sort"), _SORTS) or "created",
        prefix=_beginning(wanted.get("prefix", "")),
    )
    try:
        page = await context.call(context.index.listing, request.path_params["ns"], query)
    except ValueError as error:
        raise bad_request(str(error)) from None
    return json_answer({"entries": page.entries, "next": page.next, "total": page.total, "complete": page.complete})


def _beginning(text: str) -> str:
    if not is_digest(text.ljust(64, "0")):
        raise bad_request("prefix is not the beginning of a key: lower-case hexadecimal digits")
    return text


def _one_of(name: str, value: str | None, choices: tuple[str, ...]) -> str | None:
    if value is not None and value not in choices:
        raise bad_request(f"{name} is none of {', '.join(choices)}")
    return value


def _read_all(store: Store, keys: dict[str, None]) -> dict[str, Manifest | None]:
    return {key: store.read_manifest(key) for key in keys}


def _remove(context: Context, namespace: str, key: str, wanted: str | None) -> bool:
    """Blocks. Raises ProblemError if there is no entry, or not the wanted one."""
    store = context.store(namespace)
    manifest = store.read_manifest(key)
    if manifest is None:
        raise not_found(f"the namespace {namespace} has no entry {key}")
    data = manifest.encode()
    if wanted is not None and not matches(wanted, _etag(data)):
        raise ProblemError("precondition-failed", "the entry is another one by now")
    found = Found(store.entry_path(key), len(data), 0.0, "")
    record = read_record(context.records, store.record_name(key), namespace, key)
    return remove_entry(Storage(store, context.records), Entry(namespace, key, manifest, found, record))


def _etag(data: bytes) -> str:
    return f'"{hashlib.sha256(data).hexdigest()[:32]}"'


_MANIFEST = {"type": "object", "description": "A manifest: docs/cache.md"}
_USE = "Whether this counts as a use of the entry; it does, unless it is said to be a mere look"
_IF_NONE_MATCH = Query("If-None-Match", {"type": "string"}, "ETags that the client has", header=True)

ROUTES = [
    Route(
        "GET",
        _PATH,
        get_entry,
        Scope.READ,
        "The manifest of a key",
        {200: "The manifest", 304: "Still the same"},
        "entries",
        problems=("not-found",),
        parameters=(_IF_NONE_MATCH, Query("use", {"type": "string", "enum": ["0", "1"]}, _USE)),
        gives_schema=_MANIFEST,
    ),
    Route(
        "PUT",
        _PATH,
        put_entry,
        Scope.WRITE,
        "Publish an entry without a lease",
        {201: "Created", 200: "The same content was there"},
        "entries",
        problems=("conflict", "missing-blobs", "no-space", "quota", "too-large"),
        audit="publish",
        reads="application/json",
        reads_schema=_MANIFEST,
    ),
    Route(
        "DELETE",
        _PATH,
        delete_entry,
        Scope.ADMIN,
        "Remove an entry",
        {204: "Removed"},
        "entries",
        problems=("not-found", "conflict", "precondition-failed"),
        audit="delete",
        parameters=(Query("If-Match", {"type": "string"}, "ETags that may be removed", header=True),),
    ),
    Route(
        "POST",
        "/v1/namespaces/{ns}/lookup",
        lookup,
        Scope.READ,
        "The manifests of many keys at once",
        {200: "What is there; absent keys are left out"},
        "entries",
        problems=("too-large",),
        reads="application/json",
        reads_schema={
            "type": "object",
            "required": ["keys"],
            "properties": {
                "keys": {"type": "array", "maxItems": _LOOKUP_LIMIT, "items": {"type": "string"}},
                "use": {"type": "boolean", "description": _USE},
            },
        },
        gives_schema={"type": "object", "properties": {"entries": {"type": "object"}}},
    ),
    Route(
        "GET",
        "/v1/namespaces/{ns}/entries",
        list_entries,
        Scope.READ,
        "A page of entries",
        {200: "A page; `next` is the cursor of the following one, or null"},
        "entries",
        parameters=(
            Query("limit", {"type": "integer", "minimum": 1, "maximum": _PAGE_LIMIT}, "Entries a page"),
            Query("cursor", {"type": "string"}, "`next` of the page before"),
            Query("kind", {"type": "string", "enum": list(_KINDS)}, "Only these"),
            Query("label", {"type": "string"}, "Part of the label"),
            Query("sort", {"type": "string", "enum": list(_SORTS)}, "The order, newest or largest first"),
            Query("prefix", {"type": "string", "pattern": "^[0-9a-f]{0,64}$"}, "What the key begins with"),
        ),
        gives_schema={
            "type": "object",
            "properties": {
                "entries": {"type": "array"},
                "next": {},
                "total": {"type": "integer"},
                "complete": {"type": "boolean", "description": "False while the service looks through its store"},
            },
        },
    ),
]
