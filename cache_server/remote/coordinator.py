"""Leases that a cache service hands out."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from typing import Any
from urllib.parse import quote

from cache_server.errors import ConflictError, LeaseLostError, NotExclusiveError, StoreError, UnavailableError
from cache_server.jitter import jitter
from cache_server.leases.observer import Held, Settled, Vacant, Verdict
from cache_server.leases.owner import Owner
from cache_server.leases.record import LeaseRecord, decode_public_record
from cache_server.manifest import Manifest
from cache_server.names import check_digest
from cache_server.remote.problems import Answer, refusal
from cache_server.remote.service import Service

_POLL_SECONDS = 10.0  # how long the service may hold back an answer in which nothing changed
_SLICE = 1.0  # how long a look may take at most, so that waiters can show that they wait
_NO_NEWS_SECONDS = 0.2  # an answer without news that comes faster was not worth waiting for


class RemoteCoordinator:
    """The leases of one namespace of a service, which judges by its own clock who is dead."""

    def __init__(self, service: Service, namespace: str) -> None:
        self._service = service
        self._base = f"/namespaces/{namespace}/leases"

    def prove(self) -> None:
        """The service has tried its own store, and says so when a lease is asked for."""

    def watch(self, key: str) -> RemoteWatch:
        return RemoteWatch(self._service, f"{self._base}/{check_digest(key)}", key)


class RemoteWatch:
    """Looks at one key, by long poll once it has seen it.

    The poll runs in a thread of its own and goes on between looks, so that a look can end within a second and a
    change is seen as soon as the service tells it.
    """

    def __init__(self, service: Service, path: str, key: str) -> None:
        self._service = service
        self._path = path
        self._key = key
        self._version: str | None = None
        self._last: Verdict | None = None
        self._pending: Future[Verdict] | None = None
        self._refused = False

    def look(self, wait: float = 0.0) -> Verdict:
        if self._last is None:
            self._last = self._ask(0.0)
            return self._last
        if self._refused:
            # The service may be of two minds for a moment, or two replicas of it: no reason to hammer it.
            time.sleep(min(wait, jitter(0.02, 0.2)))
            self._refused = False
            self._last = self._ask(0.0)
            return self._last
        if self._pending is None:
            self._pending = _in_background(self._ask, _POLL_SECONDS)
        try:
            verdict = self._pending.result(min(wait, _SLICE))
        except NotYet:
            if not self._pending.done():
                return self._last
            raise
        except BaseException:
            self._pending = None
            raise
        self._pending = None
        self._last = verdict
        return verdict

    def claim(
        self, over: Vacant | Settled, *, owner: Owner, lease_seconds: float, at_least_epoch: int = 1, label: str = ""
    ) -> RemoteLease:
        token = os.urandom(16).hex()
        asked = {
            "owner": owner.to_json(),
            "lease_seconds": lease_seconds,
            "at_least_epoch": max(over.epoch + 1, at_least_epoch),
            "over": over.version,
            "label": label[:200],
            # Known beforehand, so that a repeated request whose first answer was lost is no conflict with itself.
            "token": token,
        }

        def check(answer: Answer) -> RemoteLease:
            if answer.slug == "conflict":
                self._refused = True
                raise ConflictError(f"somebody else took {self._key} first")
            if answer.slug == "no-leases":
                raise NotExclusiveError(
                    f"the cache at {self._service.url} keeps its entries where writers do not exclude each other",
                    hint="graphs are cached there without leases, so several hosts may compile the same one",
                )
            if answer.status != 201:
                raise refusal(self._service.url, answer)
            return _lease(self._service, self._path, answer.document(), lease_seconds)

        return self._service.ask("POST", f"{self._path}/acquire", asked, check=check)

    def close(self) -> None:
        """A poll on its way ends by itself, in its own thread."""
        self._pending = None

    def _ask(self, wait: float) -> Verdict:
        query = ""
        if wait and self._version is not None:
            query = f"?after={quote(self._version, safe='')}&wait={wait:g}"
        elif wait:
            query = f"?wait={wait:g}"
        known, begun = self._version, time.monotonic()
        verdict = self._service.ask("GET", self._path + query, wait=wait, check=self._verdict)
        if wait and self._version == known and time.monotonic() - begun < _NO_NEWS_SECONDS:
            # A service that is about to end lets nobody wait.
            time.sleep(jitter(0.2, 0.6))
        return verdict

    def _verdict(self, answer: Answer) -> Verdict:
        if answer.status != 200:
            raise refusal(self._service.url, answer)
        document = answer.document()
        version, state = document.get("version"), document.get("state")
        if version is not None and not isinstance(version, str):
            raise UnavailableError("the cache service's answer gives a lease no version")
        record = self._record(document.get("record"))
        if state == "held":
            verdict: Verdict = Held(record, 0.0, record.lease_seconds if record else _POLL_SECONDS)
        elif state == "settled" and record is not None and record.settled is not None and version is not None:
            verdict = Settled(record.settled, record.epoch, version)
        elif state == "vacant":
            expired = record.owner if record is not None and document.get("expired") is True else None
            verdict = Vacant(0 if record is None else record.epoch, version, expired)
        else:
            raise UnavailableError("the cache service's answer says nothing of a lease")
        self._version = version
        return verdict

    def _record(self, value: Any) -> LeaseRecord | None:
        if value is None:
            return None
        try:
            return decode_public_record(value, key=self._key)
        except (ValueError, TypeError):
            return None  # a later version's: its state is told beside it


class RemoteLease:
    """A lease that the service keeps for this process: each change names the token that only it knows."""

    def __init__(self, service: Service, path: str, *, token: str, epoch: int, seconds: float) -> None:
        self.phase = "acquired"
        self._service = service
        self._path = path
        self._token = token
        self._epoch = epoch
        self._seconds = seconds
        self._lost = False
        self._successor = ""  # what the service said of it
        self._over = False  # settled or free

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def seconds(self) -> float:
        return self._seconds

    @property
    def lost(self) -> bool:
        return self._lost

    @property
    def lists(self) -> bool:
        """True: the service puts what is published under the entries as well."""
        return True

    def renew(self) -> None:
        if not self._over:
            self._change("heartbeat", {"phase": self.phase})

    def publish(self, manifest: Manifest) -> None:
        self._over = True
        try:
            if manifest.failure is None:
                self._change("publish", {"manifest": manifest.to_json()})
            else:
                self._change("fail", {"note": manifest.failure.kind.value, "manifest": manifest.to_json()})
        except StoreError:
            self._over = False
            raise

    def release(self, note: str = "") -> None:
        if not self._over and not self._lost:
            self._change("fail", {"note": note[:1000]})
            self._over = True

    def _change(self, act: str, arguments: dict[str, Any]) -> None:
        if self._lost:
            raise self._taken()

        def check(answer: Answer) -> None:
            if answer.slug == "lease-lost":
                self._successor = answer.told("detail")
                self._lost = True
                raise self._taken()
            if answer.status not in (200, 201):
                raise refusal(self._service.url, answer)

        value = {"token": self._token, "epoch": self._epoch, **arguments}
        self._service.ask("POST", f"{self._path}/{act}", value, check=check)

    def _taken(self) -> LeaseLostError:
        what = self._successor or f"the lease of epoch {self._epoch} was taken over"
        return LeaseLostError(f"{what}; its result is not published")


def _lease(service: Service, path: str, document: dict[str, Any], seconds: float) -> RemoteLease:
    token, epoch = document.get("token"), document.get("epoch")
    if not isinstance(token, str) or not isinstance(epoch, int) or isinstance(epoch, bool):
        raise UnavailableError("the cache service's answer holds no lease")
    with contextlib.suppress(TypeError, ValueError):
        seconds = min(max(float(document.get("lease_seconds", seconds)), 0.05), 3600.0)
    return RemoteLease(service, path, token=token, epoch=epoch, seconds=seconds)


def _in_background(ask: Any, wait: float) -> Future[Verdict]:
    future: Future[Verdict] = Future()

    def run() -> None:
        try:
            future.set_result(ask(wait))
        except BaseException as error:  # noqa: BLE001  handed to whoever looks
            future.set_exception(error)

    threading.Thread(target=run, name="neuron-env-wait", daemon=True).start()
    return future
