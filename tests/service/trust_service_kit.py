"""A real service process, and requests to it with or without credentials; certificates made for the occasion."""

from __future__ import annotations

import base64
import contextlib
import datetime
import http.client
import ipaddress
import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from cache_server.storage import open_storage
from cache_server.trust.principal import Scope
from cache_server.trust.tokens import TokenBook

DEADLINE = 60.0


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.body)
        return value

    @property
    def slug(self) -> str:
        return str(self.json["type"]).rpartition(":")[2]


@dataclass
class Service:
    """`neuron-env cache serve` on a free port; `environment` adds settings."""

    store: Path
    log: Path
    environment: dict[str, str] = field(default_factory=dict)
    address: tuple[str, int] = ("127.0.0.1", 0)
    announced: str = ""

    def start(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("NEURON_ENV_")}
        self._log = self.log.open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "cli.main", "cache", "serve", str(self.store), "--listen", "127.0.0.1:0"],
            env={**environment, "NEURON_ENV_SERVER_LOG_FORMAT": "json", **self.environment},
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.announced += line
            if line.startswith("listening on "):
                port = int(line.strip().rpartition(":")[2])
                self.address = ("127.0.0.1", port)
            if line.startswith("clients set"):
                return
        raise AssertionError(f"the service did not start: {self.log.read_text()}")

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(DEADLINE)
        finally:
            self.process.kill()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
            self._log.close()

    def token(self, name: str, scope: Scope, *namespaces: str, expires_at: float | None = None) -> str:
        """Makes a token in the store, as the command does."""
        made, _ = self.book.create(
            name, scope, frozenset(namespaces) or None, now=time.time(), created_by="test", expires_at=expires_at
        )
        return made.reveal()

    @property
    def book(self) -> TokenBook:
        return TokenBook(open_storage(str(self.store)).store.backend)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | dict[str, Any] | None = None,
        *,
        token: str | None = None,
        basic: str | None = None,
        tls: ssl.SSLContext | None = None,
        **headers: str,
    ) -> Answer:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            given["Authorization"] = f"Bearer {token}"
        if basic is not None:
            given["Authorization"] = "Basic " + base64.b64encode(f"user:{basic}".encode()).decode()
        connection: http.client.HTTPConnection
        if tls is None:
            connection = http.client.HTTPConnection(*self.address, timeout=DEADLINE)
        else:
            connection = http.client.HTTPSConnection(*self.address, timeout=DEADLINE, context=tls)
        with contextlib.closing(connection):
            connection.request(method, path, json.dumps(body) if isinstance(body, dict) else body, given)
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())


@contextlib.contextmanager
def running(tmp: Path, **environment: str) -> Iterator[Service]:
    service = Service(tmp / "store", tmp / "log", environment)
    service.start()
    try:
        yield service
    finally:
        service.stop()


class Authority:
    """A certificate authority that lives for one test."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            self._builder(self._subject, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(
                x509.KeyUsage(False, False, False, False, False, True, True, False, False),
                critical=True,
            )
            .sign(self._key, hashes.SHA256())
        )
        self.path = directory / f"{name}.pem"
        self.path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, *alternatives: x509.GeneralName) -> tuple[Path, Path]:
        """A certificate and its key, as PEM files."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key)
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        paths = self._directory / f"{name}.crt", self._directory / f"{name}.key"
        paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        paths[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return paths

    def issue_server(self) -> tuple[Path, Path]:
        return self.issue("server", x509.IPAddress(ipaddress.ip_address("127.0.0.1")))

    def context(self, client: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        """How a client that trusts this authority connects, with a certificate of its own if it has one."""
        context = ssl.create_default_context(cafile=str(self.path))
        if client is not None:
            context.load_cert_chain(*client)
        return context

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
