"""Objects in S3 read and written piece by piece, for content that does not fit into memory."""

from __future__ import annotations

import contextlib
from typing import Any

from cache_server.backends.s3bucket import S3Bucket, md5
from cache_server.backends.s3errors import ConditionError, InterruptedReadError
from cache_server.backends.s3parts import MOST_PARTS
from cache_server.errors import StoreError

_PIECE = 8 << 20  # bytes; S3 takes no part but the last below 5 MiB


class S3Content:
    """One version of an object, by ranged requests that name its ETag."""

    piece = _PIECE

    def __init__(self, bucket: S3Bucket, path: str, size: int, etag: str) -> None:
        self.size = size
        self._bucket = bucket
        self._path = path
        self._etag = etag

    def read(self, start: int, size: int) -> bytes:
        if size == 0:
            return b""
        try:
            fetched = self._bucket.get(self._path, size, Range=f"bytes={start}-{start + size - 1}", IfMatch=self._etag)
        except ConditionError as error:
            raise StoreError(
                f"{self._path} in the cache at {self._bucket.url} was replaced while it was read"
            ) from error
        if fetched is None or len(fetched.data) != size:
            raise InterruptedReadError(f"the cache at {self._bucket.url} does not give {self._path} in parts")
        return fetched.data

    def close(self) -> None:
        """Nothing is held between requests."""


class S3Incoming:
    """A multipart upload that sends each part as soon as its bytes are there; one request where one part is all.

    Holds one part in memory: 8 MiB, more for objects beyond 78 GiB. The object appears when the parts are joined.
    """

    def __init__(self, bucket: S3Bucket, path: str, size: int, *, part: int = _PIECE) -> None:
        self.offset = 0
        self._bucket = bucket
        self._path = path
        self._part = max(part, -(-size // MOST_PARTS))
        self._buffer = bytearray()
        self._upload: dict[str, Any] = {}
        self._sent: list[dict[str, Any]] = []
        self._ended = False

    def append(self, data: bytes | memoryview) -> None:
        self._check_open()
        # A part that could not be sent has stayed in the buffer: no more before it is gone.
        while len(self._buffer) > self._part:
            self._send(self._part)
        self._buffer += data
        self.offset += len(data)
        while len(self._buffer) > self._part:
            self._send(self._part)

    def finish(self) -> None:
        self._check_open()
        if not self._sent:
            self._bucket.put(self._path, bytes(self._buffer))
        else:
            while self._buffer:
                self._send(min(self._part, len(self._buffer)))
            self._bucket.call(
                "write",
                "complete_multipart_upload",
                self._path,
                patient=True,
                MultipartUpload={"Parts": self._sent},
                **self._upload,
            )
            self._upload = {}
        self._end()

    def abort(self) -> None:
        # Parts that nobody joins are paid for and cannot be seen.
        if self._upload:
            with contextlib.suppress(StoreError):
                self._bucket.call("write", "abort_multipart_upload", self._path, **self._upload)
            self._upload = {}
        self._end()

    def suspend(self) -> bool:
        self.abort()
        return False

    def _send(self, size: int) -> None:
        if not self._upload:
            answer = self._bucket.call("write", "create_multipart_upload", self._path)
            self._upload = {"UploadId": answer["UploadId"]}
        body, number = bytes(self._buffer[:size]), len(self._sent) + 1
        answer = self._bucket.call(
            "write", "upload_part", self._path, PartNumber=number, Body=body, ContentMD5=md5(body), **self._upload
        )
        self._sent.append({"ETag": self._bucket.etag_of(answer), "PartNumber": number})
        del self._buffer[:size]

    def _check_open(self) -> None:
        if self._ended:
            raise StoreError(f"the upload of {self._path} to {self._bucket.url} has ended")

    def _end(self) -> None:
        self._ended = True
        self._buffer = bytearray()
