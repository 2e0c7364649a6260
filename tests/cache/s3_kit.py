"""S3 for the cache's tests: a real server process, and a proxy that makes the network bad."""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cache_kit import eventually

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test-secret",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}

_CUT = 8000  # bytes that still come of an answer that ends early


class Server:
    """A server process on a free port of this host, which `command` takes where it says `{port}`."""

    def __init__(self, command: Sequence[str], log: Path, **environment: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [part.format(port=self.port) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **environment},
            )
        try:
            eventually(self._answers, f"{command[0]} answers")
        except BaseException:
            self.stop()
            raise

    def _answers(self) -> bool:
        assert self.process.poll() is None, self._log.read_text()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        try:
            connection.request("GET", "/")
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        return True

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def client(endpoint: str) -> Any:
    """The tests' own way to the server, past the code under test."""
    import boto3
    from botocore.config import Config

    return boto3.session.Session().client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test-secret",
        config=Config(s3={"addressing_style": "path"}, request_checksum_calculation="when_required"),
    )


class Proxy:
    """Stands before a server on this host, and does to the next connections what its attributes say.

    lose_answers: so many answers get lost, though the server did what was asked
    cut_answers: so many long answers end early
    silent: nothing is answered, and no connection ends
    """

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.lose_answers = 0
        self.cut_answers = 0
        self.silent = False
        self._port = port
        self._tls = tls
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        scheme = "http" if tls is None else "https"
        self.endpoint = f"{scheme}://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        # Closing alone does not wake who waits on a socket.
        with self._lock:
            sockets = [self._listener, *self._sockets]
        for each in sockets:
            self._end(each)
        for thread in list(self._threads):
            thread.join(timeout=10)

    def _accept(self) -> None:
        while True:
            try:
                plain, _ = self._listener.accept()
            except OSError:
                return
            self._start(self._serve, plain)

    def _serve(self, plain: socket.socket) -> None:
        try:
            near = plain if self._tls is None else self._tls.wrap_socket(plain, server_side=True)
        except OSError:
            plain.close()
            return
        far = socket.create_connection(("127.0.0.1", self._port))
        with self._lock:
            self._sockets |= {near, far}
        self._start(self._answers, far, near)
        self._pump(near, far)

    def _start(self, run: Any, *arguments: Any) -> None:
        thread = threading.Thread(target=run, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        self._end(source)
        self._end(target)

    def _answers(self, far: socket.socket, near: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := far.recv(65536):
                if self.silent:
                    continue
                if self.lose_answers and not data.startswith(b"HTTP/1.1 100"):
                    self.lose_answers -= 1
                    break
                if self.cut_answers and len(data) > _CUT:
                    self.cut_answers -= 1
                    near.sendall(data[:_CUT])
                    break
                near.sendall(data)
        self._end(far)
        if not self.silent:
            self._end(near)

    def _end(self, each: socket.socket) -> None:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
