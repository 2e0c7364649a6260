"""Large objects in parts, several at a time: one connection to S3 is slower than a host's network."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from cache_server.backends.s3bucket import S3Bucket, md5
from cache_server.backends.s3errors import InterruptedReadError
from cache_server.errors import StoreError

T = TypeVar("T")
R = TypeVar("R")

LARGE = 64 << 20  # bytes from which on an object is worth parts
_PART = 16 << 20
MOST_PARTS = 10_000  # S3's limit
_STREAMS = 4


def put_in_parts(bucket: S3Bucket, path: str, data: bytes, *, part: int = _PART) -> None:
    """Stores `data` by a multipart upload: the object appears whole at its end, or not at all. Raises StoreError."""
    part = max(part, -(-len(data) // MOST_PARTS))
    upload = {"UploadId": bucket.call("write", "create_multipart_upload", path)["UploadId"]}
    view = memoryview(data)

    def send(number: int) -> dict[str, Any]:
        body = bytes(view[(number - 1) * part : number * part])
        answer = bucket.call("write", "upload_part", path, PartNumber=number, Body=body, ContentMD5=md5(body), **upload)
        return {"ETag": bucket.etag_of(answer), "PartNumber": number}

    try:
        sent = _several(send, range(1, -(-len(data) // part) + 1))
        bucket.call("write", "complete_multipart_upload", path, patient=True, MultipartUpload={"Parts": sent}, **upload)
    except BaseException:
        # Parts that nobody joins are paid for and cannot be seen.
        with contextlib.suppress(StoreError):
            bucket.call("write", "abort_multipart_upload", path, **upload)
        raise


def get_in_parts(bucket: S3Bucket, path: str, size: int, etag: str, *, part: int = _PART) -> bytes:
    """An object of `size` bytes as long as its ETag is `etag`.

    Raises ConditionError when it was replaced, InterruptedReadError when a part does not come whole, StoreError.
    """
    data = bytearray(size)

    def fetch(start: int) -> None:
        end = min(start + part, size)
        fetched = bucket.get(path, end - start, Range=f"bytes={start}-{end - 1}", IfMatch=etag)
        if fetched is None or len(fetched.data) != end - start:
            raise InterruptedReadError(f"the cache at {bucket.url} does not give {path} in parts")
        data[start:end] = fetched.data

    _several(fetch, range(0, size, part))
    return bytes(data)


def _several(act: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """`act` of each item, a few at a time; the first error ends it."""
    pool = ThreadPoolExecutor(_STREAMS, thread_name_prefix="neuron-env-s3")
    try:
        return list(pool.map(act, items))
    finally:
        pool.shutdown(cancel_futures=True)
