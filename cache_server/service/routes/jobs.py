"""Job records: what the processes of a job asked for."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from cache_server.errors import CacheError
from cache_server.jobs.record import RECORD_LIMIT, decode_record
from cache_server.jobs.shelf import BackendShelf, check_part
from cache_server.names import check_job
from cache_server.service.body import json_answer, read_bytes
from cache_server.service.context import Context
from cache_server.service.errors import bad_request, not_found
from cache_server.service.gate import Scope
from cache_server.service.route import Route

_JOBS = "/v1/namespaces/{ns}/jobs"
_JOB = _JOBS + "/{job}"
_PART = _JOB + "/{part}"


async def list_jobs(context: Context, request: Request) -> Response:
    return json_answer({"jobs": await context.call(_shelf(context, request).names)})


async def list_parts(context: Context, request: Request) -> Response:
    job, _ = _names(request)
    return json_answer({"job": job, "parts": await context.call(_shelf(context, request).parts, job)})


async def get_part(context: Context, request: Request) -> Response:
    job, part = _names(request)
    data = await context.call(_shelf(context, request).get, job, part)
    if data is None:
        raise not_found(f"the job {job} has no record {part}")
    return Response(data, headers={"Cache-Control": "no-store"}, media_type="application/json")


async def put_part(context: Context, request: Request) -> Response:
    job, part = _names(request)
    data = await read_bytes(request, RECORD_LIMIT)
    try:
        record = decode_record(data)
    except ValueError as error:
        raise bad_request(f"the body is not the record of a job: {error}") from None
    if record.job != job:
        raise bad_request(f"the record is of the job {record.job!r}, and the path of {job!r}")
    await context.call(_shelf(context, request).put, job, part, data)
    return Response(status_code=204)


async def delete_part(context: Context, request: Request) -> Response:
    job, part = _names(request)
    await context.call(_shelf(context, request).remove, job, part)
    return Response(status_code=204)


def _shelf(context: Context, request: Request) -> BackendShelf:
    return BackendShelf(context.backend, request.path_params["ns"])


def _names(request: Request) -> tuple[str, str]:
    """The job and the part in the path. Raises ProblemError for names that cannot be."""
    job, part = request.path_params["job"], request.path_params.get("part", "")
    try:
        return check_job(job), check_part(part) if part else ""
    except CacheError as error:
        raise bad_request(error.message, hint=error.hint) from None
    except ValueError as error:
        raise bad_request(str(error)) from None


_RECORD = {
    "type": "object",
    "required": ["schema", "job", "keys"],
    "properties": {"schema": {"const": 1}, "job": {"type": "string"}, "keys": {"type": "object"}},
}

ROUTES = [
    Route("GET", _JOBS, list_jobs, Scope.READ, "The jobs that wrote down their keys", {200: "Names"}, "jobs"),
    Route("GET", _JOB, list_parts, Scope.READ, "The records of a job, one a process", {200: "Names"}, "jobs"),
    Route(
        "GET",
        _PART,
        get_part,
        Scope.READ,
        "What one process of a job asked for",
        {200: "The record"},
        "jobs",
        problems=("not-found",),
        gives_schema=_RECORD,
    ),
    Route(
        "PUT",
        _PART,
        put_part,
        Scope.WRITE,
        "Write down what one process of a job asked for",
        {204: "Written"},
        "jobs",
        problems=("too-large",),
        reads="application/json",
        reads_schema=_RECORD,
        audit="job-record",
    ),
    Route(
        "DELETE",
        _PART,
        delete_part,
        Scope.WRITE,
        "Forget a record of a job",
        {204: "Forgotten"},
        "jobs",
        audit="job-forget",
    ),
]
