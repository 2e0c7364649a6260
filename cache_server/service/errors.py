"""What a client is told when a request fails: problem documents (RFC 9457), never a traceback."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cache_server.errors import CacheError, ConflictError, LeaseLostError, StoreError
from cache_server.fields import encode_object

MEDIA_TYPE = "application/problem+json"
_URN = "urn:neuron-env:cache:"

# slug: HTTP status and title.
PROBLEMS: Mapping[str, tuple[int, str]] = {
    "bad-request": (400, "The request makes no sense"),
    "unauthorized": (401, "The request does not say who sends it"),
    "forbidden": (403, "The sender may not do this"),
    "not-found": (404, "There is no such thing"),
    "method-not-allowed": (405, "The thing is there, but does not do this"),
    "conflict": (409, "Somebody else was first"),
    "lease-lost": (409, "The lease has another owner"),
    "missing-blobs": (409, "The entry names blobs that are not there"),
    "wrong-offset": (409, "The upload goes on elsewhere"),
    "length-required": (411, "The request does not say how long it is"),
    "precondition-failed": (412, "The thing is not what the request expects"),
    "too-large": (413, "The request is too large"),
    "range-not-satisfiable": (416, "There is nothing in this range"),
    "digest-mismatch": (422, "The content does not have the digest that names it"),
    "busy": (429, "Too many requests"),
    "no-leases": (501, "The store does not exclude concurrent writers"),
    "internal": (500, "The service failed"),
    "draining": (503, "The service is about to end"),
    "store-unavailable": (503, "The store cannot be used"),
    "no-space": (507, "The store is full"),
    "quota": (507, "The namespace has used up its share"),
}


class ProblemError(CacheError):
    """An answer other than success. `members` go into the document, `headers` into the response."""

    def __init__(
        self,
        slug: str,
        detail: str,
        *,
        hint: str | None = None,
        headers: Mapping[str, str] | None = None,
        **members: Any,
    ) -> None:
        super().__init__(detail, hint=hint)
        self.slug = slug
        self.status, self.title = PROBLEMS[slug]
        self.headers = dict(headers or {})
        if self.status in (429, 503):
            self.headers.setdefault("Retry-After", "1")
        self.members = members

    def document(self, request_id: str) -> bytes:
        """The body of the answer."""
        return encode_object(self.to_json(request_id))

    def to_json(self, request_id: str) -> dict[str, Any]:
        return {
            "type": _URN + self.slug,
            "title": self.title,
            "status": self.status,
            "detail": self.message,
            "hint": self.hint,
            "request_id": request_id,
            **self.members,
        }


class NoSpaceError(ProblemError):
    """No room, even after everything was evicted that may be."""

    def __init__(self, detail: str, *, hint: str | None = None) -> None:
        super().__init__("no-space", detail, hint=hint)


class QuotaError(ProblemError):
    """A namespace has used up its share, and none of it may be evicted."""

    def __init__(self, detail: str, *, hint: str | None = None) -> None:
        super().__init__("quota", detail, hint=hint)


def bad_request(detail: str, *, hint: str | None = None) -> ProblemError:
    return ProblemError("bad-request", detail, hint=hint)


def not_found(what: str) -> ProblemError:
    return ProblemError("not-found", what)


def unauthorized(detail: str, *, hint: str | None = None) -> ProblemError:
    return ProblemError("unauthorized", detail, hint=hint, headers={"WWW-Authenticate": "Bearer"})


def problem_of(error: Exception) -> ProblemError | None:
    """The answer for an error that this project raises; None for one that nobody foresaw."""
    match error:
        case ProblemError():
            return error
        case LeaseLostError():
            return ProblemError("lease-lost", error.message, hint=error.hint)
        case ConflictError():
            return ProblemError("conflict", error.message, hint=error.hint)
        case StoreError():
            return ProblemError("store-unavailable", error.message, hint=error.hint)
        case CacheError():
            return bad_request(error.message, hint=error.hint)
    return None
