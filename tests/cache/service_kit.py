"""The cache service for tests: a real process on a free port, and a plain client for its API."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3
from cache_kit import DEADLINE

from cache_server.keys import KeyParts
from cache_server.manifest import NEFF_FILE, Blob, Failure, Manifest, Producer

OWNER = {"host": "h1", "pid": 1, "user": "tester", "incarnation": ""}


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    data: bytes

    def json(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.data)
        return value

    @property
    def slug(self) -> str:
        """What a problem document says it is; empty for anything else."""
        if self.headers.get("content-type") != "application/problem+json":
            return ""
        return str(self.json()["type"]).removeprefix("urn:neuron-env:cache:")


class Service:
    """`neuron-env cache serve STORE …` as a process; the logs of all its lives are in `log`."""

    def __init__(self, store: str | Path, log: Path, *arguments: str, **environment: str) -> None:
        self.log = log
        command = [sys.executable, "-m", "cli.main", "cache", "serve", str(store), *arguments]
        if "--listen" not in arguments:
            command += ["--listen", "127.0.0.1:0"]
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**_clean_environment(), **environment},
            )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._pool = urllib3.PoolManager(retries=False, timeout=DEADLINE, maxsize=20, cert_reqs="CERT_NONE")
        try:
            self.url = self.said("listening on ").removeprefix("listening on ")
        except BaseException:
            self.close()
            raise

    def request(self, method: str, path: str, body: bytes | Mapping[str, Any] | None = None, **headers: str) -> Answer:
        """One request; header names are written with underscores."""
        data = json.dumps(body).encode() if isinstance(body, Mapping) else body
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self._pool.request(method, self.url + path, body=data, headers=named, redirect=False)
        return Answer(answer.status, {name.lower(): value for name, value in answer.headers.items()}, answer.data)

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, **headers)

    def post(self, path: str, body: Mapping[str, Any], **headers: str) -> Answer:
        return self.request("POST", path, body, **headers)

    def logged(self) -> list[dict[str, Any]]:
        """The lines of the log so far."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        return self.process.wait(timeout=DEADLINE)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        self._reader.join(timeout=DEADLINE)
        if self.process.stdout is not None:
            self.process.stdout.close()
        if hasattr(self, "_pool"):
            self._pool.clear()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(ValueError):
            for line in self.process.stdout:
                self._lines.put(line.rstrip("\n"))
        self._lines.put("")

    def said(self, beginning: str) -> str:
        """The next line on stdout that begins so."""
        while line := self._lines.get(timeout=DEADLINE):
            if line.startswith(beginning):
                return line
        raise AssertionError(f"the service ended with {self.process.wait(timeout=DEADLINE)}: {self.log.read_text()}")


def entries(key: str, namespace: str = "default") -> str:
    return f"/v1/namespaces/{namespace}/entries/{key}"


def leases(key: str, act: str = "", namespace: str = "default") -> str:
    return f"/v1/namespaces/{namespace}/leases/{key}" + (f"/{act}" if act else "")


def manifest(parts: KeyParts, blob: Blob | None, *, epoch: int = 0, failure: Failure | None = None) -> Manifest:
    """An entry as a client makes it."""
    return Manifest(
        parts=parts,
        files={} if blob is None else {NEFF_FILE: blob},
        epoch=epoch,
        producer=Producer("h1", 1, "tester", "cc 2.0", 1000.0, 2.5),
        created_at=1002.5,
        label="decode",
        failure=failure,
    )


def _clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("NEURON_ENV_SERVER_")}
