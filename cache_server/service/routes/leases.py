"""Leases: who compiles a key, and waiting for it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from cache_server.administration.locks import Hold, held_leases
from cache_server.administration.status import RECENT
from cache_server.errors import CacheError, ConflictError
from cache_server.fields import Fields
from cache_server.leases.lease import Lease
from cache_server.leases.observer import Held, Settled, Vacant
from cache_server.leases.owner import Owner
from cache_server.leases.record import State
from cache_server.manifest import MANIFEST_LIMIT
from cache_server.service import desk
from cache_server.service.body import json_answer, read_object
from cache_server.service.context import Context
from cache_server.service.errors import ProblemError, bad_request, problem_of
from cache_server.service.gate import Scope
from cache_server.service.publishing import list_entry, list_settled, neff_digest, prepare, read_manifest
from cache_server.service.route import Handler, Query, Route
from cache_server.service.watch import Sight
from cache_server.storage import Storage

log = logging.getLogger("neuron_env.cache.server")

_PATH = "/v1/namespaces/{ns}/leases/{key}"
_LONGEST_WAIT = 60.0  # seconds
_NO_STORE = {"Cache-Control": "no-store"}
_TOKEN = re.compile(r"[0-9a-f]{32,100}")
_SMALL = 64 * 1024  # bytes of a request without a manifest
_MANIFEST_BODY = MANIFEST_LIMIT + _SMALL


async def get_lease(context: Context, request: Request) -> Response:
    seconds = request.query_params.get("wait", "0")
    try:
        wait = float(seconds)
    except ValueError:
        wait = math.nan
    if not wait >= 0:
        raise bad_request(f"wait is not a number of seconds: {seconds[:40]!r}")
    after = request.query_params.get("after")
    name = _name(context, request)
    with _gone(request) as gone:
        sight = await context.watches.wait(name, after, min(wait, _LONGEST_WAIT), gone)
    watch = context.watches.of(name)
    if isinstance(sight.verdict, Settled) and watch.listed != sight.version:
        context.follow("listing an entry", list_settled(context, request.path_params["ns"], watch, sight))
    return Response(sight.encoded, headers=_NO_STORE, media_type="application/json")


def _counted(act: str, handler: Handler) -> Handler:
    """Counts what becomes of an act: done, or the problem's slug."""

    async def counting(context: Context, request: Request) -> Response:
        acts = context.metrics.acts
        try:
            response = await handler(context, request)
        except CacheError as error:
            problem = problem_of(error)
            acts.labels(act, problem.slug if problem else "internal").inc()
            raise
        acts.labels(act, "done").inc()
        return response

    return counting


@contextlib.contextmanager
def _gone(request: Request) -> Iterator[asyncio.Task[None]]:
    """A task that ends when the client hangs up: nobody should wait for somebody who does not."""

    async def listen() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    task = asyncio.get_running_loop().create_task(listen())
    try:
        yield task
    finally:
        task.cancel()


async def acquire(context: Context, request: Request) -> Response:
    if context.draining.is_set():
        raise ProblemError("draining", "this replica is about to end and gives no new leases", hint="try again")
    wish = _wish(await read_object(request, _SMALL))
    if not await context.leases_work():
        raise ProblemError(
            "no-leases",
            f"the store at {context.records.url} does not exclude concurrent writers",
            hint="publish without a lease; graphs may be compiled more than once",
        )
    name = _name(context, request)
    watch = context.watches.of(name)
    sight = await watch.look()
    if _is_had(sight, wish.token):
        return _taken(sight)
    verdict = sight.verdict
    if isinstance(verdict, Held) or (isinstance(verdict, Settled) and wish.over is None):
        raise _conflict(sight)
    if wish.over is not None and wish.over != sight.version:
        raise _conflict(sight)
    try:
        lease = await context.call(
            Lease.claim,
            context.records,
            name,
            verdict,
            owner=wish.owner,
            lease_seconds=wish.lease_seconds,
            at_least_epoch=wish.at_least_epoch,
            label=wish.label,
            token=wish.token,
        )
    except ConflictError:
        sight = await watch.look()
        if _is_had(sight, wish.token):
            return _taken(sight)
        raise _conflict(sight) from None
    if isinstance(verdict, Vacant) and verdict.expired is not None:
        context.metrics.acts.labels("acquire", "takeover").inc()
        log.warning("%s was taken over from %s, which gave no sign of life", wish.label or name, verdict.expired)
        exchange = request.scope["neuron_env"]
        exchange.audit, exchange.note = "takeover", {"from": str(verdict.expired), "by": str(wish.owner)}
    return _taken(watch.learn(lease.current))


async def heartbeat(context: Context, request: Request) -> Response:
    fields = await read_object(request, _SMALL)
    token, epoch = _holder(fields)
    try:
        phase = fields.text("phase", limit=100, default="compiling")
    except ValueError as error:
        raise bad_request(str(error)) from None
    name = _name(context, request)
    seen = await context.call(desk.heartbeat, context.records, name, token, epoch, phase)
    context.watches.of(name).learn(seen)
    return json_answer({"version": seen.version})


async def publish(context: Context, request: Request) -> Response:
    fields = await read_object(request, _MANIFEST_BODY)
    token, epoch = _holder(fields)
    return await _settle(context, request, fields, token, epoch, 201)


async def fail(context: Context, request: Request) -> Response:
    fields = await read_object(request, _MANIFEST_BODY)
    token, epoch = _holder(fields)
    if fields.raw().get("manifest") is not None:
        return await _settle(context, request, fields, token, epoch, 200)
    try:
        note = fields.text("note", limit=4000, default="")
    except ValueError as error:
        raise bad_request(str(error)) from None
    name = _name(context, request)
    seen = await context.call(desk.release, context.records, name, token, epoch, note)
    context.watches.of(name).learn(seen)
    return json_answer({"version": seen.version})


async def takeover(context: Context, request: Request) -> Response:
    fields = await read_object(request, _SMALL)
    name = _name(context, request)
    watch = context.watches.of(name)
    sight = await watch.look()
    version = fields.raw().get("version")
    if version is not None and version != sight.version:
        raise ProblemError("conflict", "this lease has changed since it was looked at", lease=sight.document())
    if sight.seen is None or isinstance(sight.verdict, Settled):
        raise ProblemError("conflict", "nobody holds this lease", lease=sight.document())
    if isinstance(sight.verdict, Held) and fields.raw().get("force") is not True:
        raise ProblemError(
            "conflict",
            "the owner of this lease has shown a sign of life within its time",
            hint='send {"force": true} to end it all the same; its result will not be published',
            lease=sight.document(),
        )
    by = request.scope["neuron_env"].principal.name
    seen = await context.call(desk.free, context.records, name, sight.seen, by)
    return json_answer(watch.learn(seen).document())


async def list_leases(context: Context, request: Request) -> Response:
    namespace = request.path_params["ns"]
    since = time.time() - RECENT if request.query_params.get("recent") == "1" else 0.0
    holds = await context.call(held_leases, Storage(context.store(namespace), context.records), since=since)
    return json_answer({"leases": [_hold(context, hold) for hold in holds]})


async def _settle(context: Context, request: Request, fields: Fields, token: str, epoch: int, status: int) -> Response:
    namespace, key = request.path_params["ns"], request.path_params["key"]
    try:
        document = fields.object("manifest")
    except ValueError as error:
        raise bad_request(str(error)) from None
    manifest = read_manifest(document, key)
    if manifest.epoch != epoch:
        raise bad_request(f"the manifest is of epoch {manifest.epoch}, the lease of epoch {epoch}")
    request.scope["neuron_env"].digest = neff_digest(manifest)
    manifest = await prepare(context, namespace, manifest)
    name = _name(context, request)
    seen = await context.call(desk.publish, context.records, name, token, epoch, manifest)
    # From here on it is published: whoever waits may have it, and a crash loses nothing.
    watch = context.watches.of(name)
    watch.listed = seen.version
    watch.learn(seen)
    await list_entry(context, namespace, manifest)
    return json_answer({"version": seen.version}, status)


@dataclass(frozen=True, slots=True)
class _Wish:
    owner: Owner
    lease_seconds: float
    at_least_epoch: int
    over: str | None
    label: str
    token: str | None


def _wish(fields: Fields) -> _Wish:
    given = fields.raw()
    try:
        wish = _Wish(
            owner=Owner.from_fields(fields.object("owner")),
            lease_seconds=fields.number("lease_seconds", low=0.05, high=3600),
            at_least_epoch=fields.integer("at_least_epoch", low=0, high=1 << 61) if "at_least_epoch" in given else 1,
            over=None if given.get("over") is None else fields.text("over", limit=500),
            label=fields.text("label", limit=200, default=""),
            token=None if given.get("token") is None else fields.text("token", limit=100),
        )
    except ValueError as error:
        raise bad_request(str(error)) from None
    if wish.token is not None and _TOKEN.fullmatch(wish.token) is None:
        raise bad_request("a token is 32 to 100 hexadecimal digits, chosen at random")
    return wish


def _is_had(sight: Sight, token: str | None) -> bool:
    """Whether the sender has this lease already: it asks again because the answer was lost."""
    record = sight.record
    return token is not None and record is not None and record.state is State.HELD and record.token == token


def _taken(sight: Sight) -> Response:
    record = sight.record
    assert record is not None
    answer = {"epoch": record.epoch, "token": record.token, "lease_seconds": record.lease_seconds}
    return json_answer({**answer, "version": sight.version}, 201)


def _name(context: Context, request: Request) -> str:
    return context.store(request.path_params["ns"]).record_name(request.path_params["key"])


def _holder(fields: Fields) -> tuple[str, int]:
    try:
        return fields.text("token", limit=100), fields.integer("epoch", low=0, high=1 << 62)
    except ValueError as error:
        raise bad_request(str(error)) from None


def _conflict(sight: Sight) -> ProblemError:
    record = sight.record
    who = f": {record.owner}, {record.phase}" if record is not None else ""
    return ProblemError("conflict", f"the key is not to be had now{who}", lease=sight.document())


def _hold(context: Context, hold: Hold) -> dict[str, object]:
    record = hold.seen.record
    return {
        "key": hold.seen.key,
        "version": hold.seen.version,
        "life": hold.life.value,
        "waiters": context.watches.of(hold.seen.name).waiters,
        "record": None if record is None else record.public(),
    }


_LEASE = {"type": "object", "properties": {"version": {}, "state": {"type": "string"}, "record": {}, "expired": {}}}
_HOLDER = {"token": {"type": "string"}, "epoch": {"type": "integer"}}


def _body(required: list[str], **properties: object) -> dict[str, object]:
    return {"type": "object", "required": required, "properties": properties}


ROUTES = [
    Route(
        "GET",
        _PATH,
        get_lease,
        Scope.READ,
        "Who holds a key; waits for news while it is held",
        {200: "The lease"},
        "leases",
        parameters=(
            Query("after", {"type": "string"}, "Wait while the lease is held at this version"),
            Query("wait", {"type": "number", "minimum": 0}, "Seconds to wait, 60 at most"),
        ),
        gives_schema=_LEASE,
    ),
    Route(
        "POST",
        _PATH + "/acquire",
        _counted("acquire", acquire),
        Scope.WRITE,
        "Take a key to compile it",
        {201: "Taken"},
        "leases",
        problems=("conflict", "no-leases", "draining"),
        reads="application/json",
        reads_schema=_body(
            ["owner", "lease_seconds"],
            owner={"type": "object"},
            lease_seconds={"type": "number"},
            at_least_epoch={"type": "integer"},
            over={"type": ["string", "null"]},
        ),
    ),
    Route(
        "POST",
        _PATH + "/heartbeat",
        _counted("heartbeat", heartbeat),
        Scope.WRITE,
        "Show a sign of life",
        {200: "Renewed"},
        "leases",
        problems=("lease-lost", "conflict"),
        paced=False,
        reads="application/json",
        reads_schema=_body(["token", "epoch"], **_HOLDER, phase={"type": "string"}),
    ),
    Route(
        "POST",
        _PATH + "/publish",
        _counted("publish", publish),
        Scope.WRITE,
        "Publish what was compiled under the lease",
        {201: "Published"},
        "leases",
        problems=("lease-lost", "missing-blobs", "no-space", "quota"),
        audit="publish",
        paced=False,
        reads="application/json",
        reads_schema=_body(["token", "epoch", "manifest"], **_HOLDER, manifest={"type": "object"}),
    ),
    Route(
        "POST",
        _PATH + "/fail",
        _counted("fail", fail),
        Scope.WRITE,
        "Give the key back, or remember a compiler's error",
        {200: "Done"},
        "leases",
        problems=("lease-lost", "missing-blobs", "no-space", "quota"),
        audit="fail",
        paced=False,
        reads="application/json",
        reads_schema=_body(["token", "epoch"], **_HOLDER, note={"type": "string"}, manifest={"type": "object"}),
    ),
    Route(
        "POST",
        _PATH + "/takeover",
        _counted("takeover", takeover),
        Scope.ADMIN,
        "End a lease",
        {200: "The lease, free now"},
        "leases",
        problems=("conflict",),
        audit="takeover",
        reads="application/json",
        reads_schema=_body([], force={"type": "boolean"}, version={"type": ["string", "null"]}),
        gives_schema=_LEASE,
    ),
    Route(
        "GET",
        "/v1/namespaces/{ns}/leases",
        list_leases,
        Scope.READ,
        "The leases that are held",
        {200: "What is in flight"},
        "leases",
        parameters=(Query("recent", {"type": "string", "enum": ["1"]}, "Leave out what has not changed for hours"),),
        gives_schema={"type": "object", "properties": {"leases": {"type": "array"}}},
    ),
]
