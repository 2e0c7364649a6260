"""A real Chromium that looks at a real service, and the calls of a client that compiles."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cache_kit import DEADLINE, parts
from service_kit import Answer, Service, entries, leases, manifest

from cache_server.manifest import Failure, Manifest
from cache_server.storage import open_storage

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# The page asks every two seconds; nearly all tests of it are as true, and sooner over, when it asks more often.
_HURRY = "const later = window.setTimeout; window.setTimeout = (act, wait) => later(act, Math.min(wait, 200));"
_CHROMIUMS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
PATIENCE = DEADLINE * 1000  # milliseconds, as Playwright counts


def launched() -> Iterator[Browser]:
    """A headless Chromium for the tests of one module. Skips them, naming the reason, where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="the dashboard's tests need `pip install playwright`")
    chromium = next((found for name in _CHROMIUMS if (found := shutil.which(name))), None)
    if chromium is None:
        pytest.skip(f"no Chromium is installed (`apt-get install chromium`): none of {', '.join(_CHROMIUMS)} is found")
    with sync_api.sync_playwright() as playwright:
        sync_api.expect.set_options(timeout=PATIENCE)
        # Its sandbox does not work in most containers, and it sees nothing here but our own page.
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


class Screen:
    """One page of the browser, and what it did: `errors` of the console and of scripts, `requests` by their URL."""

    def __init__(self, browser: Browser, *, width: int = 1280, hurry: bool = True, **options: Any) -> None:
        self._context = browser.new_context(viewport={"width": width, "height": 800}, **options)
        self._context.set_default_timeout(PATIENCE)
        if hurry:
            self._context.add_init_script(_HURRY)
        self.page: Page = self._context.new_page()
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda line: line.type in ("error", "warning") and self.errors.append(line.text))

    def open(self, service: Service) -> Page:
        self.page.goto(f"{service.url}/")
        return self.page

    def close(self) -> None:
        self._context.close()


class Compiler:
    """A client of the service that misses a graph, compiles it under a lease and publishes it."""

    def __init__(
        self,
        service: Service,
        store: Path,
        graph: str = "module {}",
        namespace: str = "default",
        token: str | None = None,
    ) -> None:
        self._service = service
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._store = open_storage(str(store), namespace=namespace).store
        self._namespace = namespace
        self._parts = parts(graph)
        self.key = self._parts.key
        self._lease: dict[str, Any] = {}

    def look(self) -> Answer:
        """A hit or a miss."""
        return self._service.get(entries(self.key, self._namespace), **self._headers)

    def begin(self, label: str = "", host: str = "trn2-001", lease_seconds: float = 600.0) -> None:
        owner = {"host": host, "pid": 4711, "user": "train", "incarnation": ""}
        wish = {"owner": owner, "lease_seconds": lease_seconds, "label": label}
        self._lease = self._expect(201, "acquire", wish)

    def wait(self) -> threading.Thread:
        """Somebody else who waits for the result."""
        path = f"{leases(self.key, namespace=self._namespace)}?after={self._lease['version']}&wait=60"
        thread = threading.Thread(target=self._service.get, args=(path,))
        thread.start()
        return thread

    def beat(self, phase: str) -> None:
        self._expect(200, "heartbeat", {**self._held, "phase": phase})

    def publish(self, *, seconds: float = 100.0, label: str = "", data: bytes = b"neff") -> None:
        made = manifest(self._parts, self._store.put_blob(data), epoch=self._lease["epoch"])
        made = replace(made, label=label, producer=replace(made.producer, compile_seconds=seconds))
        self._expect(201, "publish", {**self._held, "manifest": made.to_json()})

    def fail(self, failure: Failure, label: str = "") -> None:
        made: Manifest = manifest(self._parts, None, epoch=self._lease["epoch"], failure=failure)
        self._expect(200, "fail", {**self._held, "manifest": replace(made, label=label).to_json()})

    @property
    def _held(self) -> dict[str, Any]:
        return {"token": self._lease["token"], "epoch": self._lease["epoch"]}

    def _expect(self, status: int, act: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self._service.post(leases(self.key, act, self._namespace), body, **self._headers)
        assert answer.status == status, answer.data
        return answer.json()
