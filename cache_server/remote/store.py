"""Entries and blobs of a cache service, as a store."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING
from urllib.parse import quote

from cache_server.errors import UnavailableError
from cache_server.fields import Fields
from cache_server.manifest import Blob, Manifest, UnknownSchemaError, decode_manifest, manifest_from_fields
from cache_server.names import check_digest, check_namespace, is_digest
from cache_server.remote.downloads import Download, RemoteContent
from cache_server.remote.problems import Answer, refusal
from cache_server.remote.service import Service
from cache_server.remote.uploads import Upload, UploadStream
from cache_server.store import Put

if TYPE_CHECKING:
    from cache_server.trust.signatures import Trust

log = logging.getLogger("neuron_env.cache")

_SCAN_SECONDS = 30.0  # for a service that has just begun to look through its store
_SCAN_POLL = 0.25
_BULK = 1000  # keys a request: with their manifests an answer of about a megabyte


class RemoteStore:
    """One namespace of a service. A blob that does not verify is fetched once more and then counts as absent.

    `quarantined` counts what was damaged; only the service itself can set it aside. Without `uses` the service takes
    what is read for a mere look, which keeps nothing from being evicted. Methods raise StoreError.
    """

    def __init__(
        self, service: Service, namespace: str = "default", trust: Trust | None = None, *, uses: bool = True
    ) -> None:
        self.namespace = check_namespace(namespace)
        self.trust = trust
        self.quarantined = 0
        self._uses = uses
        self._service = service
        self._base = f"/namespaces/{namespace}"

    @property
    def url(self) -> str:
        return self._service.url

    def accepts(self, manifest: Manifest) -> bool:
        return self.trust is None or self.trust.accepts(manifest, self.namespace, self.url)

    def list_again(self, manifest: Manifest) -> None:
        """Nothing: the service does so by itself, and what a client sends it would be taken for the client's own."""

    def signed(self, manifest: Manifest) -> Manifest:
        return manifest if self.trust is None else self.trust.signed(manifest, self.namespace)

    def put_blob(self, data: bytes) -> Blob:
        blob = Blob(hashlib.sha256(data).hexdigest(), len(data))
        Upload(self._service, self._base).put(blob, data)
        return blob

    def read_blob(self, blob: Blob) -> bytes | None:
        path = f"{self._base}/blobs/{check_digest(blob.sha256)}"
        for attempts_left in (1, 0):
            data = Download(self._service, path, blob.size).read()
            if data is None:
                return None
            if hashlib.sha256(data).hexdigest() == blob.sha256:
                return bytes(data)
            # The network, or the service's disk? A second copy tells.
            if not attempts_left:
                self.quarantined += 1
                log.warning("the cache at %s gives a damaged blob %s: not used", self.url, blob.sha256)
        return None

    def open_blob(self, sha256: str) -> RemoteContent | None:
        path = f"{self._base}/blobs/{check_digest(sha256)}"

        def check(answer: Answer) -> int | None:
            if answer.status == 404:
                return None
            length = answer.headers.get("content-length", "")
            if answer.status != 200 or not (length.isascii() and length.isdigit()):
                raise refusal(self.url, answer)
            return int(length)

        size = self._service.ask("HEAD", path, check=check)
        return None if size is None else RemoteContent(self._service, path, size)

    def begin_blob(self, blob: Blob) -> UploadStream | None:
        return UploadStream.begin(self._service, self._base, blob)

    def read_manifest(self, key: str) -> Manifest | None:
        def check(answer: Answer) -> Manifest | None:
            if answer.slug == "not-found":
                return None
            if answer.status != 200:
                raise refusal(self.url, answer)
            return _decoded(answer.body, key)

        look = "" if self._uses else "?use=0"
        manifest = self._service.ask("GET", self._entry(key) + look, check=check)
        return manifest if manifest is not None and self.accepts(manifest) else None

    def read_manifests(self, keys: Iterable[str]) -> dict[str, Manifest]:
        """The manifests of those keys that have one, a thousand keys a request."""
        return self._look_up(keys, use=self._uses)

    def _look_up(self, keys: Iterable[str], *, use: bool) -> dict[str, Manifest]:
        wanted = [check_digest(key) for key in dict.fromkeys(keys)]
        found: dict[str, Manifest] = {}

        def check(answer: Answer) -> dict[str, Manifest]:
            if answer.status != 200:
                raise refusal(self.url, answer)
            return _several(answer)

        for start in range(0, len(wanted), _BULK):
            some = wanted[start : start + _BULK]
            answered = self._service.ask("POST", f"{self._base}/lookup", {"keys": some, "use": use}, check=check)
            asked = set(some)
            found.update((key, it) for key, it in answered.items() if key in asked and self.accepts(it))
        return found

    def put_manifest(self, manifest: Manifest) -> Put:
        def check(answer: Answer) -> Put:
            if answer.status == 201:
                return Put.CREATED
            if answer.status == 200:
                return Put.SAME
            if answer.slug == "conflict":
                return Put.OTHER
            raise refusal(self.url, answer)

        return self._service.ask("PUT", self._entry(manifest.key), manifest.encode(), check=check)

    def drop_manifest(self, manifest: Manifest) -> bool:
        """False: a client removes nothing. It publishes anew, under the next epoch, and the old entry gives way."""
        return False

    def entries(self) -> Iterator[Manifest]:
        cursor, end = "", time.monotonic() + _SCAN_SECONDS
        while True:
            path = f"{self._base}/entries?limit={_BULK}" + (f"&cursor={quote(cursor, safe='')}" if cursor else "")
            keys, following, complete = self._service.ask("GET", path, check=self._page)
            if not complete and not cursor:
                if time.monotonic() > end:
                    raise UnavailableError(
                        f"the cache at {self.url} is still looking through its store, and cannot list all of it yet",
                        hint="try again in a minute",
                    )
                time.sleep(_SCAN_POLL)
                continue
            yield from self._look_up(keys, use=False).values()
            if not following:
                return
            cursor = following

    def _page(self, answer: Answer) -> tuple[list[str], str, bool]:
        if answer.status != 200:
            raise refusal(self.url, answer)
        document = answer.document()
        summaries = document.get("entries")
        if not isinstance(summaries, list):
            raise UnavailableError("the cache service's list of entries is none")
        keys = [each.get("key") for each in summaries if isinstance(each, dict)]
        found = [key for key in keys if isinstance(key, str) and is_digest(key)]
        return found, str(document.get("next") or ""), document.get("complete") is not False

    def _entry(self, key: str) -> str:
        return f"{self._base}/entries/{check_digest(key)}"


def _decoded(data: bytes, key: str) -> Manifest | None:
    try:
        return decode_manifest(data, key=key)
    except UnknownSchemaError:
        return None
    except ValueError as error:
        # The service keeps no such thing, so it was garbled on the way.
        raise UnavailableError(f"the cache service's answer is not the manifest that was asked for: {error}") from None


def _several(answer: Answer) -> dict[str, Manifest]:
    entries = answer.document().get("entries")
    if not isinstance(entries, dict):
        raise UnavailableError("the cache service's answer holds no entries")
    found = {}
    for key, value in entries.items():
        try:
            found[str(key)] = manifest_from_fields(Fields.of(value, "entry"), key=str(key))
        except UnknownSchemaError:
            continue
        except ValueError as error:
            raise UnavailableError(f"the cache service's answer holds no manifest: {error}") from None
    return found
