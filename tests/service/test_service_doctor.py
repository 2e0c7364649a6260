"""What the doctor says of a real service: its answer, this host's token, the clock."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from trust_service_kit import Service, running

from cache_server.trust.principal import Scope
from cli.main import root


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("service")) as service:
        yield service


def doctor(check: str) -> dict[str, Any]:
    result = CliRunner().invoke(root, ["doctor", check, "--json"], prog_name="neuron-env")
    (found,) = json.loads(result.stdout)["checks"]
    assert result.exit_code == (1 if found["status"] == "problem" else 0)
    return dict(found)


def test_a_token_is_known_or_refused(service: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NEURON_ENV_CACHE_URL", "http://{}:{}".format(*service.address))
    monkeypatch.setenv("NEURON_ENV_CACHE_LOCAL_DIR", str(tmp_path))
    monkeypatch.setenv("NEURON_ENV_CACHE_TOKEN", service.token("ci", Scope.WRITE))
    assert doctor("shared-cache")["status"] == "ok"
    monkeypatch.setenv("NEURON_ENV_CACHE_TOKEN", "net_" + "A" * 43)
    refused = doctor("shared-cache")
    assert refused["status"] == "problem"
    assert "token" in refused["found"].lower()


def test_the_clock_of_this_host_is_the_services(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_ENV_CACHE_URL", "http://{}:{}".format(*service.address))
    assert doctor("clock")["status"] == "ok"


def test_a_clock_that_is_ahead_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Late(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def date_time_string(self, timestamp: float | None = None) -> str:
            return super().date_time_string(time.time() - 100)

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Late) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("NEURON_ENV_CACHE_URL", f"http://127.0.0.1:{server.server_port}")
        found = doctor("clock")
        server.shutdown()
    assert found["status"] == "problem"
    assert "s ahead of the service's" in found["found"]
