"""Objects of other build caches, which have keys and layouts of their own: bazel's `ac` and `cas`, and WebDAV paths."""

from __future__ import annotations

import re

from cache_server.backends import Backend, Content, Found, Incoming
from cache_server.blobs import BlobUpload
from cache_server.manifest import Blob
from cache_server.names import check_digest, check_namespace

ROOT = "plain"
_SEGMENT = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_SEGMENTS = 12


class PlainObjects:
    """The objects of one namespace, below `plain/<namespace>/`: apart from NEFFs, and named by nothing but their users.

    ac/<k[0:2]>/<k>: results by a key of the client's making; whoever writes last is right
    cas/<d[0:2]>/<d>: content by its SHA-256, verified before it is stored
    dav/<path>: whatever a WebDAV client puts there

    Methods raise StoreError when the place cannot work, and ValueError for what cannot be a name.
    """

    def __init__(self, backend: Backend, namespace: str) -> None:
        self._backend = backend
        self._root = f"{ROOT}/{check_namespace(namespace)}"

    def result_path(self, key: str) -> str:
        return f"{self._root}/ac/{check_digest(key)[:2]}/{key}"

    def content_path(self, sha256: str) -> str:
        return f"{self._root}/cas/{check_digest(sha256)[:2]}/{sha256}"

    def dav_path(self, path: str) -> str:
        segments = path.split("/")
        if len(segments) > _SEGMENTS or not all(_is_segment(segment) for segment in segments):
            raise ValueError(f"not a path of at most {_SEGMENTS} plain names: {path[:200]!r}")
        return f"{self._root}/dav/{path}"

    def find(self, path: str) -> Found | None:
        return self._backend.find(path)

    def open(self, path: str) -> Content | None:
        return self._backend.open(path)

    def write(self, path: str, data: bytes | memoryview) -> None:
        self._backend.write(path, data)

    def receive(self, path: str, size: int, *, sha256: str | None = None) -> Incoming | BlobUpload:
        """Begins an object; with `sha256` only that content is put in place, and DigestError raised for any other."""
        incoming = self._backend.receive(path, size)
        return incoming if sha256 is None else BlobUpload(Blob(sha256, size), incoming)


def _is_segment(text: str) -> bool:
    return _SEGMENT.fullmatch(text) is not None and text not in (".", "..")
