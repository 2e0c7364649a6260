"""The instance metadata service: asked by its rules, and only when wanted."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from neuron_runtime.host.host import Host
from neuron_runtime.host.report import collect_host

FACTS = {"instance-id": "i-0123456789abcdef0", "instance-type": "trn2.3xlarge", "placement/region": "us-east-2"}


@dataclass
class Service:
    url: str
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def service() -> Iterator[Service]:
    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            assert self.headers["X-aws-ec2-metadata-token-ttl-seconds"] == "60"
            self._answer("the-token")

        def do_GET(self) -> None:
            assert self.headers["X-aws-ec2-metadata-token"] == "the-token"
            fact = FACTS.get(self.path.removeprefix("/latest/meta-data/"))
            if fact is None:
                self.send_error(404)
            else:
                self._answer(fact)

        def _answer(self, text: str) -> None:
            found.asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found = Service(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield found
        server.shutdown()
        thread.join()


def test_the_service_is_asked_with_a_token(service: Service) -> None:
    host = Host(
        environ={"AWS_EC2_METADATA_SERVICE_ENDPOINT": service.url + "/", "http_proxy": "http://127.0.0.1:9"}, live=True
    )
    report = collect_host(host, proof=False, metadata=True)
    found = report.sections["metadata"]
    assert found is not None
    assert (found["instance_id"], found["instance_type"], found["ami_id"]) == (
        FACTS["instance-id"],
        "trn2.3xlarge",
        None,
    )
    assert "Not Found" in report.not_found["metadata.ami_id"]
    assert service.asked[0] == "/latest/api/token"


def test_it_is_not_asked_unless_wanted(service: Service) -> None:
    host = Host(environ={"AWS_EC2_METADATA_SERVICE_ENDPOINT": service.url}, live=True)
    assert "metadata" not in collect_host(host, proof=False).sections
    assert service.asked == []


def test_its_silence_is_a_reason(service: Service) -> None:
    for endpoint, reason in {
        "http://127.0.0.1:9": "does not answer at http://127.0.0.1:9",
        "ftp://x": "no http URL",
    }.items():
        host = Host(environ={"AWS_EC2_METADATA_SERVICE_ENDPOINT": endpoint}, live=True)
        assert reason in collect_host(host, proof=False, metadata=True).not_found["metadata"]
