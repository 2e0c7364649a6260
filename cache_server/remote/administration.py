"""Looking after a store through the service that keeps it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar
from urllib.parse import quote

from cache_server.administration.base import Listing, Progress
from cache_server.administration.collection import Policy
from cache_server.administration.fsck import Finding
from cache_server.administration.listing import Filter, beginning_of_key, resolve, select
from cache_server.administration.local import no_entry, refuse_pinned
from cache_server.administration.locks import Hold, Life, life_of
from cache_server.administration.removal import Kind, Removed, Thing
from cache_server.administration.snapshot import Entry, SeenRecord
from cache_server.administration.status import Details, ServiceStatus, StoreStatus, Usage
from cache_server.administration.summary import Summary
from cache_server.errors import CacheError, StoreError, UnavailableError
from cache_server.fields import Fields, encode_object
from cache_server.leases.record import decode_public_record
from cache_server.manifest import UnknownSchemaError, decode_manifest
from cache_server.names import check_namespace, is_digest
from cache_server.remote.options import RemoteOptions
from cache_server.remote.problems import Answer, refusal
from cache_server.remote.service import Service
from cache_server.resilience.effort import effort_of

T = TypeVar("T")

SECONDS = 60.0  # that an answer may take: some of them are about all that a store holds
_PAGE = 1000
_POLL = 0.25
_SLACK = 5.0  # seconds beyond its lease after which a watch gives up on the service's verdict
_BLOBS_LATER = "what only these entries name goes with the service's collections, within minutes once it is an hour old"
_UNSEEN = "an entry that others put into the store just now is found by its whole key only"


@dataclass(frozen=True, slots=True)
class _Doomed:
    """An entry that is to be removed if it still is as `etag` says."""

    thing: Thing
    etag: str


class RemoteAdministration:
    """An `Administration` of one namespace of a service. What it reads counts as no use of anything."""

    def __init__(self, options: RemoteOptions, namespace: str) -> None:
        self._namespace = check_namespace(namespace)
        self._service = Service.at(replace(options, timeout_seconds=max(options.timeout_seconds, SECONDS)))
        self._base = f"/namespaces/{namespace}"

    @property
    def url(self) -> str:
        return self._service.url

    @property
    def namespace(self) -> str:
        return self._namespace

    def status(self, *, details: bool) -> StoreStatus:
        # The service's index has counted: nothing takes long.
        everything, own = self._fields("GET", "/stats"), self._fields("GET", f"{self._base}/stats")
        holds = self._holds("?recent=1")
        try:
            return _status(everything, own, holds)
        except ValueError as error:
            raise self._garbled(error) from None

    def ls(self, wanted: Filter, *, sort: str, limit: int | None) -> Listing:
        query = {"sort": {"age": "created"}.get(sort, sort), "kind": wanted.kind, "label": wanted.label}
        found: list[Summary] = []
        now, total, cursor = time.time(), 0, ""
        while True:
            page, total, cursor, complete = self._page({**query, "cursor": cursor or None})
            found += (entry for entry in page if wanted.takes(entry, now=now))
            if not cursor or (limit is not None and len(found) >= limit):
                return Listing(tuple(select(found, wanted, now=now, sort=sort, limit=limit)), total, complete=complete)

    def entry(self, text: str) -> Entry:
        entry, _ = self._entry(self._key(text))
        lease = self._fields("GET", f"{self._base}/leases/{entry.key}").raw()
        record = lease.get("record")
        seen = None if record is None else self._seen({**lease, "key": entry.key})
        return replace(entry, record=seen, pinned=entry.key in self._pins())

    def holds(self) -> list[Hold]:
        return self._holds("")

    def watch(self, holds: Sequence[Hold]) -> list[Hold]:
        decided = [hold for hold in holds if hold.life is not Life.UNKNOWN]
        watched = [hold for hold in holds if hold.life is Life.UNKNOWN]
        end = time.monotonic() + max((hold.lease_seconds for hold in watched), default=0.0) + _SLACK
        while watched:
            verdicts = [(hold, self._look(hold)) for hold in watched]
            decided += [after for _, after in verdicts if after is not None and after.life is not Life.UNKNOWN]
            watched = [hold for hold, after in verdicts if after is not None and after.life is Life.UNKNOWN]
            if watched and time.monotonic() > end:
                return decided + watched
            time.sleep(_POLL if watched else 0.0)
        return decided

    def free(self, hold: Hold) -> bool:
        # Whoever asks has made up their mind about the owner; the version sees to it that it still is that lease.
        asked = {"force": True, "version": hold.seen.version}
        return self._ask(
            "POST",
            f"{self._base}/leases/{hold.seen.key}/takeover",
            lambda answer: self._unless(answer, "conflict"),
            asked,
        )

    def pin(self, text: str) -> tuple[str, bool]:
        key = self._key(text)
        return key, self._ask("PUT", f"{self._base}/pins/{key}", lambda answer: self._changed(answer, key), {})

    def unpin(self, text: str) -> tuple[str, bool]:
        key = resolve(text, self._pins(), what="pin")
        return key, self._ask("DELETE", f"{self._base}/pins/{key}", lambda answer: self._changed(answer, key))

    def removal(self, texts: Sequence[str]) -> RemoteRemoval:
        keys = list(dict.fromkeys(self._key(text) for text in texts))
        pinned = self._pins()
        refuse_pinned([key for key in keys if key in pinned])
        return RemoteRemoval([self._doomed(key) for key in keys], self._remove)

    def collection(self, policy: Policy) -> RemoteCollection:
        wanted = asdict(policy)
        asked = {name: wanted[name] for name in ("max_bytes", "older_than", "unused_for", "grace")}

        def collect(dry_run: bool, progress: Progress) -> Fields:
            return self._work("gc", {**asked, "dry_run": dry_run}, progress)

        return RemoteCollection(collect)

    def check(self, *, repair: bool, contents: bool, grace: float, progress: Progress) -> list[Finding]:
        result = self._work("fsck", {"repair": repair, "contents": contents, "grace": grace}, progress)
        return _several(result, "problems", Finding.from_fields)

    def _key(self, text: str) -> str:
        wanted = beginning_of_key(text)
        if is_digest(wanted):
            return wanted
        page, _, _, _ = self._page({"prefix": wanted})
        if not page:
            raise CacheError(no_entry(wanted).message, hint=f"type `neuron-env cache ls`; {_UNSEEN}")
        return resolve(wanted, (entry.key for entry in page))

    def _entry(self, key: str) -> tuple[Entry, str]:
        """An entry and its ETag. Raises CacheError if there is none."""

        def check(answer: Answer) -> tuple[Entry, str]:
            if answer.slug == "not-found":
                raise no_entry(key)
            self._check(answer)
            try:
                manifest = decode_manifest(answer.body, key=key)
            except UnknownSchemaError:
                raise CacheError(
                    f"a later version of this program wrote the entry {key[:16]}", hint="install a newer neuron-env"
                ) from None
            except ValueError as error:
                raise self._garbled(error) from None
            return Entry(self._namespace, key, manifest, None), answer.headers.get("etag", "")

        return self._ask("GET", f"{self._base}/entries/{key}?use=0", check)

    def _doomed(self, key: str) -> _Doomed:
        entry, etag = self._entry(key)
        kind = Kind.FAILURE if entry.is_failure else Kind.ENTRY
        return _Doomed(Thing(kind, key, len(entry.manifest.encode()), "asked for"), etag)

    def _remove(self, doomed: _Doomed) -> bool:
        headers = {"If-Match": doomed.etag} if doomed.etag else {}
        slugs = ("not-found", "conflict", "precondition-failed")
        return self._ask(
            "DELETE",
            f"{self._base}/entries/{doomed.thing.name}",
            lambda answer: self._unless(answer, *slugs),
            headers=headers,
        )

    def _pins(self) -> set[str]:
        try:
            return set(self._fields("GET", f"{self._base}/pins").texts("pins", count=1 << 24, limit=64))
        except ValueError as error:
            raise self._garbled(error) from None

    def _page(self, query: Mapping[str, str | None]) -> tuple[list[Summary], int, str, bool]:
        asked = "&".join(f"{name}={quote(value, safe='')}" for name, value in query.items() if value is not None)
        document = self._fields("GET", f"{self._base}/entries?limit={_PAGE}&{asked}")
        try:
            entries = _several(document, "entries", Summary.from_fields)
            given = document.raw()
            total = document.integer("total", low=0, high=1 << 62)
            return entries, total, str(given.get("next") or ""), given.get("complete") is not False
        except ValueError as error:
            raise self._garbled(error) from None

    def _holds(self, query: str) -> list[Hold]:
        document = self._fields("GET", f"{self._base}/leases{query}").raw()
        given = document.get("leases")
        if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
            raise self._garbled("it lists no leases")
        return [self._hold(each) for each in given]

    def _hold(self, value: Mapping[str, Any]) -> Hold:
        seen = self._seen(value)
        try:
            life = Life(str(value.get("life")))
        except ValueError:
            life = Life.UNKNOWN
        # The owner may be of this host, which can tell what the service's cannot.
        return Hold(seen, life_of(seen) if life is Life.UNKNOWN else life)

    def _seen(self, value: Mapping[str, Any]) -> SeenRecord:
        key, version, given = value.get("key"), value.get("version"), value.get("record")
        if not isinstance(key, str) or not is_digest(key) or not isinstance(version, str):
            raise self._garbled("a lease has no key or no version")
        name = f"{self._namespace}/{key[:2]}/{key}"
        try:
            record = None if given is None else decode_public_record(given, key=key)
        except (ValueError, TypeError) as error:
            return SeenRecord(self._namespace, key, name, version, None, str(error))
        why = "" if record is not None else "the service cannot read it"
        return SeenRecord(self._namespace, key, name, version, record, why)

    def _look(self, hold: Hold) -> Hold | None:
        """What the service, which watches with its own clock, says of a lease by now; None if it has ended."""
        value = self._fields("GET", f"{self._base}/leases/{hold.seen.key}").raw()
        if value.get("version") == hold.seen.version:
            return replace(hold, life=Life.DEAD) if value.get("expired") is True else hold
        if value.get("state") != "held":
            return None
        return Hold(self._seen({**value, "key": hold.seen.key}), Life.ALIVE)

    def _work(self, what: str, asked: Mapping[str, Any], progress: Progress) -> Fields:
        """Has the service work on the whole store, and waits for the result. Asked once: it takes as long as it takes.

        Raises StoreError for whatever the service says is wrong.
        """
        path = f"/v1{self._base}/{what}"
        for line in self._service.connection.lines(path, encode_object(asked), timeout=SECONDS):
            try:
                told = Fields.of(json.loads(line), "a line")
                if (problem := told.optional_object("problem")) is not None:
                    detail = problem.text("detail", limit=4000)
                    raise StoreError(f"the cache at {self.url} fails: {detail}", hint=problem.raw().get("hint"))
                if (result := told.optional_object("result")) is not None:
                    return result
                at = told.object("progress")
                progress(at.integer("done", low=0, high=1 << 62), at.integer("total", low=0, high=1 << 62))
            except ValueError as error:
                raise self._garbled(error) from None
        raise UnavailableError(
            f"the cache at {self.url} broke off in the middle of `{what}`",
            hint="run it again: what was done is done, and the rest is done then",
        )

    def _ask(
        self,
        method: str,
        path: str,
        check: Callable[[Answer], T],
        value: Mapping[str, Any] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> T:
        with effort_of(2 * SECONDS):
            return self._service.ask(method, path, value, headers=headers, check=check)

    def _fields(self, method: str, path: str) -> Fields:
        def check(answer: Answer) -> Fields:
            self._check(answer)
            return Fields(answer.document())

        return self._ask(method, path, check)

    def _changed(self, answer: Answer, key: str) -> bool:
        if answer.slug == "not-found":
            raise no_entry(key)
        self._check(answer)
        return answer.document().get("changed") is True

    def _unless(self, answer: Answer, *slugs: str) -> bool:
        """True for success, False for these problems; raises for others."""
        if answer.slug in slugs:
            return False
        self._check(answer)
        return True

    def _check(self, answer: Answer) -> None:
        if answer.status not in (200, 201, 204):
            raise refusal(self.url, answer)

    def _garbled(self, why: object) -> UnavailableError:
        return UnavailableError(f"the answer of the cache at {self.url} cannot be understood: {why}")


class RemoteRemoval:
    """Entries that were looked at, to be removed if they still are so."""

    def __init__(self, doomed: Sequence[_Doomed], remove: Callable[[_Doomed], bool]) -> None:
        self._doomed = doomed
        self._remove = remove

    @property
    def things(self) -> Sequence[Thing]:
        return [doomed.thing for doomed in self._doomed]

    @property
    def notes(self) -> Sequence[str]:
        return [_BLOBS_LATER] if any(doomed.thing.kind is Kind.ENTRY for doomed in self._doomed) else []

    def carry_out(self, progress: Progress) -> Removed:
        done: list[Thing] = []
        left: list[Thing] = []
        for number, doomed in enumerate(self._doomed, 1):
            (done if self._remove(doomed) else left).append(doomed.thing)
            progress(number, len(self._doomed))
        return Removed(tuple(done), tuple(left))


class RemoteCollection:
    """What the service would collect. It plans anew before it collects, so what is removed may differ a little."""

    def __init__(self, collect: Callable[[bool, Progress], Fields]) -> None:
        self._collect = collect
        planned = collect(True, lambda done, total: None)
        self.things: Sequence[Thing] = _several(planned, "removed", Thing.from_fields)
        self.notes: Sequence[str] = planned.texts("notes", count=100, limit=4000)

    def carry_out(self, progress: Progress) -> Removed:
        result = self._collect(False, progress)
        return Removed(
            tuple(_several(result, "removed", Thing.from_fields)), tuple(_several(result, "left", Thing.from_fields))
        )


def _several(fields: Fields, name: str, read: Callable[[Fields], T]) -> list[T]:
    value = fields.raw().get(name)
    if not isinstance(value, list):
        raise UnavailableError(f"the cache service's answer lists no {name}")
    try:
        return [read(Fields.of(each, name)) for each in value]
    except ValueError as error:
        raise UnavailableError(f"the cache service's {name} cannot be understood: {error}") from None


def _status(everything: Fields, own: Fields, holds: Sequence[Hold]) -> StoreStatus:
    """Raises ValueError for what is no statistics."""
    store, totals = everything.object("store").raw(), everything.object("totals").raw()
    given, scanned_at = own.raw(), own.object("index").raw().get("scanned_at")

    def count(name: str) -> int:
        return own.integer(name, low=0, high=1 << 62) if name in given else 0

    leases, verdict = "unproven", "the service tries its store when it is first asked for a lease"
    if store.get("leases") is True:
        leases, verdict = "on", "the service has tried its store: of two who wrote one record, one was refused"
    elif store.get("leases") is False:
        leases, verdict = "off", "the service's store does not exclude concurrent writers"
    service = ServiceStatus(
        version=everything.text("version", limit=100),
        replica=everything.text("replica", limit=400),
        uptime=everything.number("uptime_seconds", low=0, high=1e12),
        draining=everything.raw().get("draining") is True,
        reachable=store.get("reachable") is True,
        capacity=totals.get("capacity_bytes"),
        stored=totals.get("bytes"),
        reserved=totals.get("reserved_bytes"),
        quota=given.get("quota_bytes"),
        used=count("bytes"),
        hits=count("hits"),
        misses=count("misses"),
        waiters=everything.integer("waiters", low=0, high=1 << 62),
        index_age=max(0.0, time.time() - scanned_at) if isinstance(scanned_at, int | float) else None,
    )
    details = Details(
        neffs=Usage(count("neffs"), count("neff_bytes")),
        failures=count("failures"),
        expired_failures=count("expired_failures"),
        saved_seconds=own.number("compile_seconds", low=0, high=1e15) if "compile_seconds" in given else 0.0,
        obscure=None,
    )
    blobs = Usage(totals["blobs"], totals["bytes"]) if "blobs" in totals else None
    entries = count("entries") + count("failures")
    return StoreStatus(leases, verdict, entries, count("pinned"), tuple(holds), blobs, None, details, service)
