"""A bucket, or a prefix in one, through boto3: single requests, bounded in time, with errors that people can read."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib.util
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from cache_server.backends.base import Found
from cache_server.backends.s3errors import InterruptedReadError, MissingObjectError, failed, refused
from cache_server.backends.s3options import S3Options, parse_s3_url
from cache_server.errors import CacheError, StoreError

_ATTEMPTS = 3
_CONNECT_SECONDS = 3.0
# Joining an upload's parts is work for the server, which may be silent for long over it.
_PATIENT_SECONDS = 60.0
_CONNECTIONS = 16


@dataclass(frozen=True, slots=True)
class Fetched:
    """An object's content, whole or the part that was asked for, and the ETag to name in conditions."""

    data: bytes
    etag: str


class S3Bucket:
    """Objects by path below `root` of the bucket that `url` names. Safe to use from several threads.

    The connection is made at the first request. Each request ends in bounded time: a silent one is given up after
    `options.timeout_seconds`, and tried three times in all. Methods raise StoreError, and its kinds in `s3errors`.
    `url` names the place, with its server, in messages. Raises CacheError where boto3 is not installed, or for a
    URL that names no bucket. `guard` is a context entered for each request.
    """

    def __init__(
        self,
        url: str,
        root: str = "",
        options: S3Options | None = None,
        *,
        guard: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self.bucket, prefix = parse_s3_url(url)
        if importlib.util.find_spec("boto3") is None:
            raise CacheError(f"boto3, which {url} needs, is not installed", hint="type: pip install 'neuron-env[s3]'")
        self.options = S3Options.from_environment() if options is None else options
        self._root = "".join(f"{part}/" for part in (prefix, root) if part)
        self.url = f"s3://{self.bucket}/{self._root}".rstrip("/")
        if self.options.endpoint:
            self.url += f" on {self.options.endpoint}"
        self._guard = guard
        self._lock = threading.Lock()
        self._clients: dict[float, Any] = {}

    def get(self, path: str, limit: int, **conditions: Any) -> Fetched | None:
        """An object, or one byte more than `limit` of it when it is longer; None if there is none.

        `conditions` are GetObject's, `Range` and `IfMatch` among them.
        """
        for attempts_left in reversed(range(_ATTEMPTS)):
            try:
                answer = self.call("read", "get_object", path, **conditions)
                return Fetched(self._content(answer, limit), answer.get("ETag", ""))
            except MissingObjectError:
                return None
            except InterruptedReadError:
                if not attempts_left:
                    raise
                time.sleep(0.05)
        raise AssertionError("unreachable")

    def head(self, path: str) -> tuple[int, str] | None:
        """An object's length in bytes and its ETag; None if there is none."""
        try:
            answer = self.call("look at", "head_object", path)
        except MissingObjectError:
            return None
        return int(answer["ContentLength"]), answer.get("ETag", "")

    def put(self, path: str, data: bytes, **conditions: Any) -> str:
        """Stores an object in one request; returns its ETag. `conditions` are PutObject's."""
        answer = self.call("write", "put_object", path, Body=data, ContentMD5=md5(data), **conditions)
        return self.etag_of(answer)

    def delete(self, path: str, **conditions: Any) -> None:
        """Removes an object. That there is none is no error, unless a condition says so."""
        self.call("remove", "delete_object", path, **conditions)

    def copy(self, path: str, target: str, **arguments: Any) -> None:
        """Copies an object of up to 5 GiB within the server. `arguments` are CopyObject's."""
        source = {"Bucket": self.bucket, "Key": self._root + path}
        self.call("copy", "copy_object", target, patient=True, CopySource=source, **arguments)

    def presigned(self, path: str, seconds: int) -> str:
        """A URL at which anybody may read the object for so long, with this process' credentials at most."""
        from botocore.exceptions import BotoCoreError

        arguments = {"Bucket": self.bucket, "Key": self._root + path}
        try:
            client = self._client(self._timeout)
            return str(client.generate_presigned_url("get_object", Params=arguments, ExpiresIn=seconds))
        except BotoCoreError as error:
            raise failed(self.url, error) from error

    def find(self, path: str) -> Found | None:
        """What is known of one object; None if there is none."""
        try:
            answer = self.call("look at", "head_object", path)
        except MissingObjectError:
            return None
        return _found(path, answer["ContentLength"], answer)

    def walk(self, prefix: str, *, page: int = 1000) -> Iterator[str]:
        """The paths below `prefix`, up to `page` of them a request."""
        return (found.path for found in self.scan(prefix, page=page))

    def scan(self, prefix: str, *, page: int = 1000) -> Iterator[Found]:
        """The objects below `prefix`, up to `page` of them a request."""
        token: dict[str, Any] = {}
        while True:
            answer = self._request(
                "list",
                prefix,
                "list_objects_v2",
                Bucket=self.bucket,
                Prefix=f"{self._root}{prefix}/",
                MaxKeys=page,
                **token,
            )
            for found in answer.get("Contents", ()):
                yield _found(found["Key"].removeprefix(self._root), found["Size"], found)
            if not answer.get("IsTruncated"):
                return
            token = {"ContinuationToken": answer["NextContinuationToken"]}

    def call(
        self, action: str, operation: str, path: str, *, patient: bool = False, **arguments: Any
    ) -> dict[str, Any]:
        """One request of the S3 API for one object. `action` is a verb for messages."""
        return self._request(
            action, path, operation, patient=patient, Bucket=self.bucket, Key=self._root + path, **arguments
        )

    def etag_of(self, answer: dict[str, Any]) -> str:
        etag = answer.get("ETag")
        if not etag:
            raise StoreError(f"the cache at {self.url} answers a write without an ETag")
        return str(etag)

    def _request(
        self, action: str, path: str, operation: str, *, patient: bool = False, **arguments: Any
    ) -> dict[str, Any]:
        with self._guard():
            return self._attempt(action, path, operation, patient=patient, **arguments)

    def _attempt(self, action: str, path: str, operation: str, *, patient: bool, **arguments: Any) -> dict[str, Any]:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            client = self._client(max(_PATIENT_SECONDS, self._timeout) if patient else self._timeout)
            answer: dict[str, Any] = getattr(client, operation)(**arguments)
        except ClientError as error:
            told = error.response.get("Error", {})
            code, text = str(told.get("Code", "")), str(told.get("Message", ""))
            raise refused(self.url, action, path, code, text) from error
        except (BotoCoreError, ValueError) as error:
            raise failed(self.url, error) from error
        return answer

    def _content(self, answer: dict[str, Any], limit: int) -> bytes:
        from botocore.exceptions import BotoCoreError

        length = answer.get("ContentLength")
        with contextlib.closing(answer["Body"]) as body:
            try:
                # Only a read to the end compares what came with what was announced.
                data: bytes = body.read() if length is not None and length <= limit else body.read(limit + 1)
            except (BotoCoreError, OSError) as error:
                raise InterruptedReadError(f"the cache at {self.url} breaks off in the middle of an object") from error
        return data

    @property
    def _timeout(self) -> float:
        return self.options.timeout_seconds

    def _client(self, timeout: float) -> Any:
        with self._lock:
            if timeout not in self._clients:
                self._clients[timeout] = _connect(self.options, timeout)
            return self._clients[timeout]


def _found(path: str, size: int, answer: dict[str, Any]) -> Found:
    # Whole seconds: a listing may know the time more exactly than a look at one object does.
    modified = int(answer["LastModified"].timestamp())
    # An ETag alone is often a digest, and comes back when the same content is written again.
    return Found(path, size, modified, f"{answer.get('ETag', '')} {modified}")


def md5(data: bytes) -> str:
    """What the Content-MD5 header says: every S3 server checks it, unlike newer checksums."""
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


def _connect(options: S3Options, timeout: float) -> Any:
    import boto3
    from botocore.config import Config

    session = boto3.session.Session()
    region = options.region or session.region_name
    if region is None and options.endpoint:
        region = "us-east-1"  # a server of one's own seldom has regions, but signatures need one
    config = Config(
        connect_timeout=min(timeout, _CONNECT_SECONDS),
        read_timeout=timeout,
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
        s3={"addressing_style": options.addressing},
        # Many servers do not know the trailing checksums that boto3 adds by itself.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        max_pool_connections=_CONNECTIONS,
    )
    return session.client("s3", endpoint_url=options.endpoint, region_name=region, config=config)
