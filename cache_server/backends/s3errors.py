"""What an S3 request can end with, told to people: what went wrong, and what to do about it."""

from __future__ import annotations

from cache_server.errors import StoreError, TimedOutError, UnavailableError


class MissingObjectError(StoreError):
    """There is no such object."""


class ConditionError(StoreError):
    """The object is not what the request's condition asks for (412)."""


class ContendedError(StoreError):
    """Another request for the same object was under way (409): look again."""


class InterruptedReadError(StoreError):
    """The connection broke within an object's content. Worth another attempt."""


_CREDENTIALS = "set `AWS_PROFILE`, or `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, or give the host a role"
_EXPIRED = "get fresh credentials, for example with `aws sso login`"
_WRONG = "check `AWS_PROFILE` or `AWS_ACCESS_KEY_ID` and its secret, and that they belong to this server"
_REGION = "set `AWS_REGION` to the region that the bucket is in"
_PATIENCE = "jobs go on without it; it is tried again at the next graph"
_REACH = "check the network and `NEURON_ENV_CACHE_S3_ENDPOINT`"
_RIGHTS = (
    "allow s3:GetObject, s3:PutObject and s3:DeleteObject on its objects and s3:ListBucket on the bucket "
    "(without that one a missing object looks like a forbidden one)"
)

# By the error code of the answer; a HEAD has no body, so its code is the bare status.
_ANSWERS: dict[str, tuple[str, str]] = {
    "NoSuchBucket": ("has no such bucket", "create the bucket, or correct `NEURON_ENV_CACHE_URL`"),
    "AccessDenied": ("denies access", _RIGHTS),
    "403": ("denies access", _RIGHTS),
    "AllAccessDisabled": ("denies access", _RIGHTS),
    "InvalidAccessKeyId": ("does not know these credentials", _WRONG),
    "SignatureDoesNotMatch": ("does not accept the signature of these credentials", _WRONG),
    "ExpiredToken": ("says that the credentials have expired", _EXPIRED),
    "InvalidToken": ("does not accept the session token", _EXPIRED),
    "TokenRefreshRequired": ("says that the credentials have expired", _EXPIRED),
    "RequestTimeTooSkewed": ("says that this host's clock is wrong", "set the clock, for example with chrony"),
    "PermanentRedirect": ("is in another region", _REGION),
    "AuthorizationHeaderMalformed": ("is in another region", _REGION),
    "301": ("is in another region", _REGION),
    "SlowDown": ("is overloaded", _PATIENCE),
    "ServiceUnavailable": ("is overloaded", _PATIENCE),
    "503": ("is overloaded", _PATIENCE),
    "InternalError": ("failed inside", _PATIENCE),
    "500": ("failed inside", _PATIENCE),
}
_MISSING = frozenset({"NoSuchKey", "NotFound", "404"})
_CONDITION = frozenset({"PreconditionFailed", "412"})
_CONTENDED = frozenset({"ConditionalRequestConflict", "OperationAborted", "409"})

# Answers that may be others the next time.
_TEMPORARY = frozenset({"SlowDown", "ServiceUnavailable", "503", "InternalError", "500"})
_TIMEOUTS = frozenset({"ReadTimeoutError", "ConnectTimeoutError"})
_NO_ANSWER = _TIMEOUTS | {"ConnectionError", "HTTPClientError"}

# By the class of the error on this side, the first that fits.
_FAILURES: tuple[tuple[str, str, str], ...] = (
    (
        "SSLError",
        "cannot be trusted",
        "set `AWS_CA_BUNDLE` to the file of the certificate authority that signed for it",
    ),
    ("NoCredentialsError", "cannot be used without credentials", _CREDENTIALS),
    ("PartialCredentialsError", "cannot be used with half of the credentials", _CREDENTIALS),
    ("CredentialRetrievalError", "cannot be used: the credentials could not be fetched", _CREDENTIALS),
    ("NoAuthTokenError", "cannot be used without credentials", _EXPIRED),
    ("TokenRetrievalError", "cannot be used: the credentials could not be fetched", _EXPIRED),
    ("SSOError", "cannot be used: the credentials could not be fetched", _EXPIRED),
    ("ProfileNotFound", "cannot be used", "correct `AWS_PROFILE`"),
    ("NoRegionError", "cannot be used without a region", _REGION),
    ("ReadTimeoutError", "does not answer in time", _PATIENCE),
    ("ConnectTimeoutError", "cannot be reached in time", _REACH),
    ("ConnectionError", "cannot be reached", _REACH),
    ("HTTPClientError", "cannot be reached", _REACH),
)


def refused(place: str, action: str, path: str, code: str, text: str) -> StoreError:
    """The error for an answer with an S3 error `code`; `action` and `path` are what was asked for.

    Where the trouble is the place's and not the object's, the message leaves the object out: the same trouble then
    reads the same each time, and is told once.
    """
    told = f"cannot {action} {path} in the cache at {place}: {code}: {text}"
    if code in _MISSING:
        return MissingObjectError(told)
    if code in _CONDITION:
        return ConditionError(told)
    if code in _CONTENDED:
        return ContendedError(told)
    if known := _ANSWERS.get(code):
        what, hint = known
        kind = UnavailableError if code in _TEMPORARY else StoreError
        return kind(f"the cache at {place} {what} ({code})", hint=hint)
    return StoreError(told)


def failed(place: str, error: Exception) -> StoreError:
    """The error for a request that got no answer."""
    names = [kind.__name__ for kind in type(error).__mro__]
    for name, what, hint in _FAILURES:
        if name in names:
            # Such texts hold addresses and objects, which differ from one request to the next.
            detail = f": {error}" if name in ("SSLError", "ProfileNotFound") else ""
            if name in _NO_ANSWER:
                kind = TimedOutError if name in _TIMEOUTS else UnavailableError
                return kind(f"the cache at {place} {what}", hint=hint)
            return StoreError(f"the cache at {place} {what}{detail}", hint=hint)
    return StoreError(f"the cache at {place} cannot be used: {error}")
