"""Looking after the store: pins, collection by a policy of the asker's, checks and repairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from cache_server.administration import pins
from cache_server.administration.collection import HOUR, Policy
from cache_server.administration.local import LocalAdministration
from cache_server.administration.removal import Kind, Step, Thing
from cache_server.fields import Fields
from cache_server.leases.owner import Owner
from cache_server.service.body import json_answer, read_object
from cache_server.service.context import Context
from cache_server.service.errors import ProblemError, bad_request, not_found
from cache_server.service.gate import Principal, Scope
from cache_server.service.route import Route
from cache_server.service.upkeep import NDJSON, Progress, UpkeepAnswer
from cache_server.storage import Storage

_NAMESPACE = "/v1/namespaces/{ns}"
_PIN = _NAMESPACE + "/pins/{key}"
_SMALL = 64 * 1024
_LONGEST = 1e10  # seconds


async def list_pins(context: Context, request: Request) -> Response:
    namespace = request.path_params["ns"]
    return json_answer({"pins": sorted(await context.call(pins.pinned_keys, context.backend, namespace))})


async def put_pin(context: Context, request: Request) -> Response:
    namespace, key = request.path_params["ns"], request.path_params["key"]
    store, owner = context.store(namespace), _owner(request)
    if await context.call(store.read_manifest, key) is None:
        raise not_found(f"the namespace {namespace} has no entry {key}")
    created = await context.call(pins.pin, store, key, owner)
    context.index.pinned(namespace, key, True)
    return json_answer({"key": key, "changed": created}, 201 if created else 200)


async def delete_pin(context: Context, request: Request) -> Response:
    namespace, key = request.path_params["ns"], request.path_params["key"]
    removed = await context.call(pins.unpin, context.store(namespace), key)
    context.index.pinned(namespace, key, False)
    return json_answer({"key": key, "changed": removed})


async def collect(context: Context, request: Request) -> Response:
    administration = _administration(context, request)
    fields = await read_object(request, _SMALL)
    dry_run = fields.raw().get("dry_run") is True
    try:
        policy = Policy(
            max_bytes=None if _absent(fields, "max_bytes") else fields.integer("max_bytes", low=0, high=1 << 62),
            older_than=_seconds(fields, "older_than"),
            unused_for=_seconds(fields, "unused_for"),
            grace=_grace(fields),
        )
    except ValueError as error:
        raise bad_request(str(error)) from None
    exchange = request.scope["neuron_env"]
    exchange.note = {"dry_run": dry_run}

    def work(progress: Progress) -> Mapping[str, Any]:
        progress(0, 0)
        proposal = administration.collection(policy)
        done: Sequence[Thing] = proposal.things
        left: Sequence[Thing] = ()
        if not dry_run:
            try:
                removed = proposal.carry_out(progress)
            finally:
                context.index.look_again()
            done, left = removed.done, removed.left
        freed = sum(thing.size for thing in done)
        exchange.note = {"dry_run": dry_run, "removed": len(done), "freed_bytes": freed}
        return {
            "dry_run": dry_run,
            "removed": [thing.to_json() for thing in done],
            "left": [thing.to_json() for thing in left],
            "freed_bytes": freed,
            "notes": list(proposal.notes),
        }

    return UpkeepAnswer(context.call, work, turn=context.upkeep, draining=context.draining)


async def check(context: Context, request: Request) -> Response:
    administration = _administration(context, request)
    fields = await read_object(request, _SMALL)
    given = fields.raw()
    repair, contents = given.get("repair") is True, given.get("contents") is not False
    try:
        grace = _grace(fields)
    except ValueError as error:
        raise bad_request(str(error)) from None
    exchange = request.scope["neuron_env"]
    exchange.note = {"repair": repair}

    def work(progress: Progress) -> Mapping[str, Any]:
        progress(0, 0)
        try:
            found = administration.check(repair=repair, contents=contents, grace=grace, progress=progress)
        finally:
            if repair:
                context.index.look_again()
        mended = sum(finding.repaired for finding in found)
        exchange.note = {"repair": repair, "problems": len(found), "repaired": mended}
        return {"problems": [finding.to_json() for finding in found], "remaining": len(found) - mended}

    return UpkeepAnswer(context.call, work, turn=context.upkeep, draining=context.draining)


def _administration(context: Context, request: Request) -> LocalAdministration:
    """Raises ProblemError for whoever administers a part, since blobs belong to all, and while somebody is at it."""
    principal: Principal = request.scope["neuron_env"].principal
    if principal.namespaces is not None:
        raise ProblemError(
            "forbidden",
            f"{principal.name} administers some namespaces, and this is about blobs, which all of them share",
            hint="use a token of the scope admin for every namespace: "
            "`neuron-env cache token create NAME --scope admin` makes one",
        )
    if context.upkeep.locked():
        raise ProblemError(
            "conflict", "this replica is at a collection or a check already", hint="try again once it is done"
        )
    namespace = request.path_params["ns"]

    def removed(step: Step) -> None:
        if step.kind in (Kind.ENTRY, Kind.FAILURE):
            context.index.removed(namespace, step.name)

    return LocalAdministration(Storage(context.store(namespace), context.records), by=_owner(request), removed=removed)


def _owner(request: Request) -> Owner:
    """Whoever asks, as notes in the store name it."""
    peer = request.client.host if request.client else "unknown"
    return Owner(peer, 0, request.scope["neuron_env"].principal.name)


def _absent(fields: Fields, name: str) -> bool:
    return fields.raw().get(name) is None


def _seconds(fields: Fields, name: str) -> float | None:
    return None if _absent(fields, name) else fields.number(name, low=0, high=_LONGEST)


def _grace(fields: Fields) -> float:
    seconds = _seconds(fields, "grace")
    return HOUR if seconds is None else seconds


def _nullable(kind: str) -> dict[str, Any]:
    return {"type": [kind, "null"], "minimum": 0}


_LINES = {
    "type": "object",
    "description": "One object a line: `progress` each second, `result` or `problem` at the end",
    "properties": {"progress": {"type": "object"}, "result": {"type": "object"}, "problem": {"type": "object"}},
}
_CHANGED = {"type": "object", "properties": {"key": {"type": "string"}, "changed": {"type": "boolean"}}}

ROUTES = [
    Route(
        "GET",
        _NAMESPACE + "/pins",
        list_pins,
        Scope.READ,
        "The keys that nothing may remove",
        {200: "Keys"},
        "administration",
        gives_schema={"type": "object", "properties": {"pins": {"type": "array", "items": {"type": "string"}}}},
    ),
    Route(
        "PUT",
        _PIN,
        put_pin,
        Scope.ADMIN,
        "Keep an entry from being removed",
        {201: "It is pinned now", 200: "It was pinned already"},
        "administration",
        problems=("not-found",),
        gives_schema=_CHANGED,
        audit="pin",
    ),
    Route(
        "DELETE",
        _PIN,
        delete_pin,
        Scope.ADMIN,
        "Take a pin away",
        {200: "There is none any more"},
        "administration",
        gives_schema=_CHANGED,
        audit="unpin",
    ),
    Route(
        "POST",
        _NAMESPACE + "/gc",
        collect,
        Scope.ADMIN,
        "Remove what a policy of the asker's says may go, as `neuron-env cache gc` does",
        {200: "Progress, then what was removed"},
        "administration",
        problems=("conflict",),
        reads="application/json",
        reads_schema={
            "type": "object",
            "properties": {
                "dry_run": {"type": "boolean"},
                "max_bytes": _nullable("integer"),
                **{name: _nullable("number") for name in ("older_than", "unused_for", "grace")},
            },
        },
        gives=NDJSON,
        gives_schema=_LINES,
        audit="gc",
    ),
    Route(
        "POST",
        _NAMESPACE + "/fsck",
        check,
        Scope.ADMIN,
        "Check the store, and mend it, as `neuron-env cache fsck` does",
        {200: "Progress, then the problems"},
        "administration",
        problems=("conflict",),
        reads="application/json",
        reads_schema={
            "type": "object",
            "properties": {
                "repair": {"type": "boolean"},
                "contents": {"type": "boolean"},
                "grace": _nullable("number"),
            },
        },
        gives=NDJSON,
        gives_schema=_LINES,
        audit="fsck",
    ),
]
