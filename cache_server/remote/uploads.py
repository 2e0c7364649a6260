"""Blobs to a service: in one request, or in a session that outlives broken connections where they are large."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

from cache_server.blobs import check
from cache_server.errors import DigestError, UnavailableError
from cache_server.manifest import Blob
from cache_server.remote.problems import Answer, refusal
from cache_server.remote.service import Service

LARGE = 64 << 20  # bytes above which an upload is a session
_PIECE = 64 << 20  # bytes a request of a session
_RESTARTS = 2
_HELD = 16 << 20  # bytes of a stream before they are sent
_ABORT_SECONDS = 5.0
_IDENTIFIER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._~-]{0,199}")


class Upload:
    """Puts one blob below `base`, a path below /v1 such as `/namespaces/default`. Raises StoreError.

    `limits` are the size above which there is a session, and the bytes a request of one.
    """

    def __init__(self, service: Service, base: str, *, limits: tuple[int, int] = (LARGE, _PIECE)) -> None:
        self._service = service
        self._base = base
        self._large, self._piece = limits

    def put(self, blob: Blob, data: bytes) -> None:
        if blob.size <= self._large:
            self._whole(blob, data)
            return
        for _ in range(_RESTARTS + 1):
            if self._session(blob, memoryview(data)):
                return
        raise UnavailableError(f"the cache at {self._service.url} keeps forgetting an upload")

    def _whole(self, blob: Blob, data: bytes) -> None:
        def attempt(timeout: float) -> None:
            path = f"/v1{self._base}/blobs/{blob.sha256}"
            _accepted(self._service, self._service.connection.ask("PUT", path, body=data, timeout=timeout), 200, 201)

        self._service.persistence.run(attempt, free=True)

    def _session(self, blob: Blob, data: memoryview) -> bool:
        """False if the service does not know the session any more: another replica, or it was restarted."""
        session = Session.begin(self._service, self._base, blob)
        if session is None:
            return True
        while (done := session.send(lambda offset: data[offset : offset + self._piece])) is None:
            pass
        return done or has_blob(self._service, self._base, blob)


class Session:
    """An upload that the service keeps between requests. `offset` is how far it has come, as far as is known."""

    def __init__(self, service: Service, place: str, size: int, offset: int) -> None:
        self.offset = offset
        self._service = service
        self._place = place
        self._size = size
        self._sure = True  # whether `offset` is what the service has

    @classmethod
    def begin(cls, service: Service, base: str, blob: Blob) -> Session | None:
        """None if the service has the blob. Raises StoreError."""

        def begun(answer: Answer) -> Session | None:
            _accepted(service, answer, 200, 201)
            document = answer.document()
            if answer.status == 200 and document.get("complete") is True:
                return None
            identifier = document.get("id")
            if not isinstance(identifier, str) or _IDENTIFIER.fullmatch(identifier) is None:
                raise UnavailableError("the cache service names no upload")
            offset = _offset(document.get("offset", 0), blob.size)
            return cls(service, f"/v1{base}/uploads/{identifier}", blob.size, offset)

        return service.ask("POST", f"{base}/blobs/{blob.sha256}/uploads", {"size": blob.size}, check=begun)

    def send(self, source: Callable[[int], memoryview]) -> bool | None:
        """Sends what `source` has from an offset on. True: complete; False: forgotten; None: there is more to send."""

        def attempt(timeout: float) -> bool | None:
            connection = self._service.connection
            if not self._sure:
                answer = connection.ask("HEAD", self._place, timeout=timeout)
                if answer.status == 404:
                    return False
                if answer.status >= 400:
                    raise refusal(self._service.url, answer)
                self._came_to(answer)
            body = source(self.offset)
            self._sure = False
            answer = connection.ask(
                "PATCH",
                self._place,
                body=body,
                headers={"Upload-Offset": str(self.offset), "Content-Type": "application/octet-stream"},
                timeout=timeout,
            )
            if answer.status == 404:
                return False
            if answer.status == 409:
                raise UnavailableError("the cache service has another part of an upload than this client sent")
            _accepted(self._service, answer, 200, 201, 204)
            if answer.status == 201:
                self.offset, self._sure = self._size, True
                return True
            self._came_to(answer)
            return None

        return self._service.persistence.run(attempt, progress=lambda: self.offset, free=True)

    def abort(self) -> None:
        self._service.connection.ask("DELETE", self._place, timeout=_ABORT_SECONDS)

    def _came_to(self, answer: Answer) -> None:
        self.offset, self._sure = _offset(answer.headers.get("upload-offset"), self._size), True


class UploadStream:
    """A blob that goes to a service piece by piece, as a `cache_server.tier.BlobStream`; 16 MiB of it are in memory."""

    def __init__(self, service: Service, base: str, session: Session, blob: Blob) -> None:
        self._service = service
        self._base = base
        self._session = session
        self._blob = blob
        self._hash = hashlib.sha256()
        self._held = bytearray()  # what has not been sent, from `_from` on
        self._from = 0
        self._over = False

    @classmethod
    def begin(cls, service: Service, base: str, blob: Blob) -> UploadStream | None:
        """None if the service has the blob. Raises StoreError."""
        session = Session.begin(service, base, blob)
        return None if session is None else cls(service, base, session, blob)

    def append(self, data: bytes | memoryview) -> None:
        self._hash.update(data)
        self._held += data
        if self._from + len(self._held) > self._blob.size:
            raise DigestError(f"more than the {self._blob.size} bytes that were announced came")
        # The last piece waits for the digest: the service puts a blob in its place as soon as it has all of it.
        if len(self._held) >= _HELD and self._from + len(self._held) < self._blob.size:
            self._send()

    def finish(self) -> None:
        check(self._blob, self._from + len(self._held), self._hash.hexdigest())
        self._send()
        self._over = True

    def abort(self) -> None:
        if not self._over:
            self._over = True
            self._session.abort()

    def _send(self) -> None:
        end = self._from + len(self._held)
        while True:
            done = self._session.send(self._rest)
            if done is False:
                self._over = True
                if end == self._blob.size and has_blob(self._service, self._base, self._blob):
                    break
                raise UnavailableError(f"the cache at {self._service.url} forgot an upload", hint="run it again")
            if done or self._session.offset >= end:
                break
        self._held, self._from = bytearray(), end

    def _rest(self, offset: int) -> memoryview:
        if offset < self._from:
            raise UnavailableError(f"the cache at {self._service.url} lost a part of an upload", hint="run it again")
        return memoryview(self._held)[offset - self._from :]


def has_blob(service: Service, base: str, blob: Blob) -> bool:
    """Whether the blob is there: a session whose last answer was lost is gone as well."""
    path = f"{base}/blobs/{blob.sha256}"
    return service.ask("HEAD", path, check=lambda answer: answer.status in (200, 307))


def _accepted(service: Service, answer: Answer, *statuses: int) -> None:
    if answer.status in statuses:
        return
    if answer.slug == "digest-mismatch":
        raise UnavailableError(f"a blob reached the cache at {service.url} damaged")
    raise refusal(service.url, answer)


def _offset(value: object, size: int) -> int:
    try:
        offset = int(str(value))
    except ValueError:
        offset = -1
    if not 0 <= offset <= size:
        raise UnavailableError("the cache service does not say how much of an upload it has")
    return offset
